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

LATELY: Final = 2 * LAST_BACKOFF
"""Seconds for which a cause that was met is not said again."""


class Said:
    """
    What the log has of an outage, which several connections of a process may meet.

    The first one that meets a cause says so, and the first one that is back. Others
    may notice it later, when they are used again. They may be of several threads: at
    worst a line comes twice.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        """Monotonic seconds since when one of them fails; None: nothing is to be
        said of it any more."""
        self._met_at: dict[str, float] = {}
        """Causes that one of them has met lately, and when it last did."""

    def met(self, cause: str, now: float) -> bool:
        """Note a cause; return whether none of them has met it lately."""
        lately = {c: at for c, at in self._met_at.items() if now - at <= LATELY}
        self._met_at = {**lately, cause: now}
        return cause not in lately


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
        said = self._said
        if said.since is None:
            said.since = self._failed_at
        is_news, is_repeated = said.met(told, now), told == self._told
        self._told = told
        if is_news and not is_repeated:
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
        said = self._said
        if self._failed_at is not None and said.since is not None:
            logger.info(
                "%s recovered after %.1f s",
                self._what,
                now - said.since,
                extra={"action": "database_found"},
            )
            said.since = None
        self.since = self._failed_at = None
        self._told = ""

    def lasts(self, now: float) -> float:
        """Return for how many seconds the table has been lost."""
        return 0.0 if self.since is None else now - self.since


def _action(error: DatabaseError) -> str:
    return "database_locked" if isinstance(error, DatabaseBusy) else "database_lost"
