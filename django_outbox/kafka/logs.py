"""
Sends librdkafka's own log lines to DEBUG.

During an outage of a broker every client writes dozens of lines each second, too
many for people. But only these lines say, for example, that a broker closed a
connection, so those about failed connections are also passed to a callback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

_FAILED: Final = "FAIL"
"""librdkafka's facility for lines about failed connections."""


class ClientLog:
    """
    The `logger` of a client's configuration; called while it is polled.

    Args:
        on_failure: called with each line about a failed connection.
    """

    def __init__(self, on_failure: Callable[[str], None]) -> None:
        self._on_failure = on_failure

    def log(self, level: int, message: str, *args: object) -> None:
        """Log a line, with librdkafka's level in the text."""
        if args and args[0] == _FAILED:
            self._on_failure(str(args[-1]))
        if logger.isEnabledFor(logging.DEBUG):
            line = message % args if args else message
            logger.debug("%s: %s", logging.getLevelName(level), line)
