"""
Where librdkafka's own log lines go: to DEBUG.

While a broker is away a client writes dozens of lines each second, and each
client for itself. What people need to know, the adapters log once, from the
errors that the client reports.
"""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class ClientLog:
    """The `logger` of a client's configuration; called while it is polled."""

    def log(self, level: int, message: str, *args: object) -> None:
        """Pass a line on, with its level as librdkafka sees it."""
        if logger.isEnabledFor(logging.DEBUG):
            line = message % args if args else message
            logger.debug("%s: %s", logging.getLevelName(level), line)


class WatchedLog(ClientLog):
    """Counts failures, too: that a broker has closed a connection is told only here."""

    def __init__(self) -> None:
        self.failures = 0

    def log(self, level: int, message: str, *args: object) -> None:
        if args and args[0] == "FAIL":
            self.failures += 1
        super().log(level, message, *args)


CLIENT_LOG = ClientLog()
