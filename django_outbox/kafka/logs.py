"""
Where librdkafka's own log lines go: to DEBUG.

While a broker is away a client writes dozens of lines each second, and each
client for itself. What people need to know, `errors.py` logs once. Only these
lines say that a broker has closed a connection, for one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

_FAILED: Final = "FAIL"
"""librdkafka's name for lines about a connection that broke."""


class ClientLog:
    """
    The `logger` of a client's configuration; called while it is polled.

    Args:
        on_failure: called with each line about a connection that broke.
    """

    def __init__(self, on_failure: Callable[[str], None]) -> None:
        self._on_failure = on_failure

    def log(self, level: int, message: str, *args: object) -> None:
        """Pass a line on, with its level as librdkafka sees it."""
        if args and args[0] == _FAILED:
            self._on_failure(str(args[-1]))
        if logger.isEnabledFor(logging.DEBUG):
            line = message % args if args else message
            logger.debug("%s: %s", logging.getLevelName(level), line)
