"""
How long the table has been out of reach, and when to try again.

The dispatcher and the settler keep one each; the dispatcher resigns when one
of them lasts too long. Another session's lock is no outage: the database
answers, and no other leader would get past that lock.
"""

from __future__ import annotations

import logging
from typing import Final

from ..exceptions import DatabaseBusy, DatabaseError

logger = logging.getLogger(__name__)

FIRST_BACKOFF: Final = 0.1
"""Seconds before the first new try."""

LAST_BACKOFF: Final = 1.0
"""Seconds between later tries."""


class Availability:
    """
    One side's view of the table: reached, or lost since a moment.

    Args:
        what: what is out of reach, in the words of the log.
    """

    def __init__(self, what: str = "The outbox table") -> None:
        self._what = what
        self.since: float | None = None
        """Monotonic seconds since when nothing answers; None: reached, or locked."""
        self._failed_at: float | None = None
        """Of the first failure in a row, locks included."""
        self._backoff = FIRST_BACKOFF
        self._told = ""
        """What was logged of this row of failures."""

    def lost(self, error: DatabaseError, now: float) -> float:
        """Note a failure, log it when it is new; return when to retry."""
        began = now - error.waited
        if self._failed_at is None:
            self._failed_at = began
            self._backoff = FIRST_BACKOFF
        if isinstance(error, DatabaseBusy):
            self.since = None
        elif self.since is None:
            # The answer is missing since it was asked for.
            self.since = began
        message = str(error)
        # One lock makes many statements fail, each with another text.
        told = type(error).__name__ if isinstance(error, DatabaseBusy) else message
        if told != self._told:
            self._told = told
            logger.warning(
                "%s is unavailable, retrying: %s",
                self._what,
                message,
                extra={"action": _action(error)},
            )
        retry_at = now + self._backoff
        self._backoff = min(self._backoff * 2, LAST_BACKOFF)
        return retry_at

    def reached(self, now: float) -> None:
        """Note a success."""
        if self._failed_at is not None:
            logger.info(
                "%s recovered after %.1f s",
                self._what,
                now - self._failed_at,
                extra={"action": "database_found"},
            )
        self.since = self._failed_at = None
        self._told = ""

    def lasts(self, now: float) -> float:
        """Return for how many seconds the table has been lost."""
        return 0.0 if self.since is None else now - self.since


def _action(error: DatabaseError) -> str:
    return "database_locked" if isinstance(error, DatabaseBusy) else "database_lost"
