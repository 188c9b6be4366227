"""
How long the table has been unavailable, and when to retry.

Each connection has an `Availability` of its own; a leader resigns when an outage of one
of the relay's connections lasts too long. A lock of another session is not an outage:
the database answers, and no other leader would get past that lock.
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


class OutageLog:
    """
    What was logged of an outage that several connections of a process may meet.

    The first connection that meets a cause logs it, and the first one that recovers
    logs the recovery. Others may notice either later, when they are used again. They
    may belong to several threads: at worst a line is logged twice.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        """Monotonic seconds since when a connection that has logged a cause fails."""
        self.causes: set[str] = set()
        """Causes that were logged since then."""
        self._former: set[str] = set()
        self._ended_at = 0.0

    def has(self, cause: str, now: float) -> bool:
        """Return whether a cause was logged in this outage, or in one just over."""
        is_recent = now - self._ended_at <= REPEAT_WINDOW
        return cause in self.causes or (is_recent and cause in self._former)

    def end(self, now: float) -> None:
        """Note that a connection has recovered."""
        self._former, self.causes = self.causes, set()
        self.since, self._ended_at = None, now


class Availability:
    """
    Availability of the table, as one connection sees it.

    Args:
        what: the name of what is unavailable, for the log.
        outage_log: shared by all connections that would meet the same outage.
    """

    def __init__(
        self, what: str = "The outbox table", *, outage_log: OutageLog | None = None
    ) -> None:
        self._what = what
        self._outage_log = outage_log or OutageLog()
        self.since: float | None = None
        """Monotonic seconds since when nothing answers; None: it does, or is locked."""
        self._failed_at: float | None = None
        """Monotonic seconds of the first failure in a row, locks included."""
        self._backoff = FIRST_BACKOFF
        self._logged = ""
        """The cause that this connection logged last in this row of failures."""

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
        cause = type(error).__name__ if isinstance(error, DatabaseBusy) else message
        log = self._outage_log
        if cause != self._logged and not log.has(cause, now):
            self._logged = cause
            log.causes.add(cause)
            logger.warning(
                "%s is unavailable, retrying: %s",
                self._what,
                message,
                extra={"action": _action(error)},
            )
        if self._logged and log.since is None:
            log.since = self._failed_at
            log.causes.add(self._logged)
        retry_at = now + self._backoff
        self._backoff = min(self._backoff * 2, LAST_BACKOFF)
        return retry_at

    def reached(self, now: float) -> None:
        """Note a success."""
        log = self._outage_log
        if self._failed_at is not None and log.since is not None:
            logger.info(
                "%s recovered after %.1f s",
                self._what,
                now - log.since,
                extra={"action": "database_found"},
            )
            log.end(now)
        self.since = self._failed_at = None
        self._logged = ""

    def lasts(self, now: float) -> float:
        """Return for how many seconds the table has been lost."""
        return 0.0 if self.since is None else now - self.since


def _action(error: DatabaseError) -> str:
    return "database_locked" if isinstance(error, DatabaseBusy) else "database_lost"
