"""
How long the table has been out of reach, and when to try again.

Each connection to it has one; a leader resigns when one of the relay's lasts too
long. Another session's lock is no outage: the database answers, and no other leader
would get past that lock.
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

REPEAT_WINDOW: Final = 2 * LAST_BACKOFF
"""Seconds after an outage in which its causes are not logged again."""


class Said:
    """
    What the log has of an outage, which several connections of a process may meet.

    The first one that meets a cause says so, and the first one that is back. Others
    may notice it a moment later, when they are used again. They may be of several
    threads: at worst a line comes twice.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        """Monotonic seconds since when one of those who said so fails."""
        self.causes: set[str] = set()
        """What was said since then."""
        self._former: set[str] = set()
        self._ended_at = 0.0

    def has(self, cause: str, now: float) -> bool:
        """Return whether a cause was said of this outage, or of one just over."""
        is_lately = now - self._ended_at <= REPEAT_WINDOW
        return cause in self.causes or (is_lately and cause in self._former)

    def end(self, now: float) -> None:
        """Note that one of them is back."""
        self._former, self.causes = self.causes, set()
        self.since, self._ended_at = None, now


class Availability:
    """
    One side's view of the table: reached, or lost since a moment.

    Args:
        what: what is out of reach, in the words of the log.
        said: what the log has of it, if others look at the same.
    """

    def __init__(
        self, what: str = "The outbox table", *, said: Said | None = None
    ) -> None:
        self._what = what
        self._said = said or Said()
        self.since: float | None = None
        """Monotonic seconds since when nothing answers; None: reached, or locked."""
        self._failed_at: float | None = None
        """Of the first failure in a row, locks included."""
        self._backoff = FIRST_BACKOFF
        self._told = ""
        """What it has logged last of this row of failures."""

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
        said = self._said
        if told != self._told and not said.has(told, now):
            self._told = told
            said.causes.add(told)
            logger.warning(
                "%s is unavailable, retrying: %s",
                self._what,
                message,
                extra={"action": _action(error)},
            )
        if self._told and said.since is None:
            said.since = self._failed_at
            said.causes.add(self._told)
        retry_at = now + self._backoff
        self._backoff = min(self._backoff * 2, LAST_BACKOFF)
        return retry_at

    def reached(self, now: float) -> None:
        """Note a success."""
        said = self._said
        if self._failed_at is not None and said.since is not None:
            logger.info(
                "%s recovered after %.1f s",
                self._what,
                now - said.since,
                extra={"action": "database_found"},
            )
            said.end(now)
        self.since = self._failed_at = None
        self._told = ""

    def lasts(self, now: float) -> float:
        """Return for how many seconds the table has been lost."""
        return 0.0 if self.since is None else now - self.since


def _action(error: DatabaseError) -> str:
    return "database_locked" if isinstance(error, DatabaseBusy) else "database_lost"
