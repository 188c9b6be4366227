"""
How long the table has been out of reach, and when to try again.

The dispatcher and the settler keep one each; the dispatcher resigns when one
of them lasts too long.
"""

from __future__ import annotations

import logging
from typing import Final

from ..exceptions import DatabaseError

logger = logging.getLogger(__name__)

FIRST_BACKOFF: Final = 0.1
"""Seconds before the first new try."""

LAST_BACKOFF: Final = 1.0
"""Seconds between later tries."""


class Outage:
    """
    One side's view of the table: reached, or lost since a moment.

    Args:
        what: what is out of reach, in the words of the log.
    """

    def __init__(self, what: str = "The outbox table") -> None:
        self._what = what
        self.since: float | None = None
        """Boot-time seconds of the first failure in a row; None: reached."""
        self._backoff = FIRST_BACKOFF
        self._message = ""

    def lost(self, error: DatabaseError, now: float) -> float:
        """Note a failure, log it when it is news; return when to try again."""
        if self.since is None:
            self.since = now
            self._backoff = FIRST_BACKOFF
        if (message := str(error)) != self._message:
            self._message = message
            logger.warning(
                "%s cannot be used, trying on: %s",
                self._what,
                message,
                extra={"action": "database_lost"},
            )
        retry_at = now + self._backoff
        self._backoff = min(self._backoff * 2, LAST_BACKOFF)
        return retry_at

    def reached(self, now: float) -> None:
        """Note a success."""
        if self.since is not None:
            logger.info(
                "%s can be used again after %.1f s",
                self._what,
                now - self.since,
                extra={"action": "database_found"},
            )
        self.since = None
        self._message = ""

    def lasts(self, now: float) -> float:
        """Return for how many seconds the table has been lost."""
        return 0.0 if self.since is None else now - self.since
