"""
Sends what was staged when its time has come, while this process leads.

The thread "tend" asks `wait()` and calls `step()`, as it does with the
meter. Each step asks the database when something is due, so that an empty
table costs one look a second, and does no more than a chunk of each kind.
Concurrent releasers are safe: each row leaves the staged table once.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Final

from ..exceptions import DatabaseBusy, DatabaseError, DatabaseUnavailable
from ..message.record import ExpiredSeries, StagingDeadlines
from .availability import Availability, OutageLog
from .ports import Staging

logger = logging.getLogger(__name__)

MAX_CHUNK_ROWS: Final = 1_000
"""Most rows of one statement, which take about 20 ms. Each failure halves the chunk:
the values may be too large to be moved in time."""

CHUNK_GROWTH: Final = 50
"""Rows that are added to the chunk after each statement that succeeded."""

MAX_INTERVAL: Final = 1.0
"""Seconds between two looks, at most: a record may be staged that is due before
all others."""

MISSING_TABLE_INTERVAL: Final = 60.0
"""Seconds between two looks for a staged table that does not exist."""

REST_FACTOR: Final = 4.0
"""Each step is followed by a rest of this many times its duration, which leaves the
database to the relay."""


class Releaser:
    """
    Moves what is due, at a pace that leaves room for others.

    Args:
        staging: the tables, or None: there are none.
        interval: seconds between two steps, at least.
        on_expired: told the leader id and each series whose time was up, when
            its messages are gone.
        clock: monotonic seconds.
        outage_log: shared by all connections that would meet the same outage.
    """

    def __init__(
        self,
        staging: Staging | None,
        *,
        interval: float,
        on_expired: Callable[[str, ExpiredSeries], None],
        clock: Callable[[], float],
        outage_log: OutageLog | None = None,
    ) -> None:
        self._staging = staging
        self._interval = interval
        self._on_expired = on_expired
        self._clock = clock
        self._outage = Availability(outage_log=outage_log)
        self._chunks: dict[str, int] = defaultdict(lambda: MAX_CHUNK_ROWS)
        """Of each kind of work."""
        self._look_at = 0.0 if staging else float("inf")

    def wait(self, now: float) -> float:
        """Return the seconds until the next step is due."""
        return max(0.0, self._look_at - now)

    def skip(self, now: float) -> None:
        """Let a step pass: this process does not lead."""
        self._look_at = now + MAX_INTERVAL

    def step(self, leader_id: str) -> None:
        """Move what is due; a table out of reach is tried again later."""
        assert self._staging is not None, "without a table no step is ever due"
        began = self._clock()
        try:
            wait = self._work(self._staging, leader_id)
        except DatabaseError as error:
            self._look_at = self._outage.lost(error, self._clock())
            return
        now = self._clock()
        self._outage.reached(now)
        self._look_at = now + max(wait, self._interval, REST_FACTOR * (now - began))

    def close(self) -> None:
        """Let the connection go."""
        if self._staging is not None:
            self._staging.close()

    def _work(self, staging: Staging, leader_id: str) -> float:
        """Do what is due; return the seconds until there is more, if it is known."""
        agenda = staging.agenda()
        if agenda is None:
            return MISSING_TABLE_INTERVAL
        work: dict[str, Callable[[int], object]] = {}
        if agenda.due <= 0:
            work["release"] = partial(self._release, staging)
        if agenda.overdue <= 0:
            work["expire"] = lambda limit: staging.expire(limit=limit)
        if agenda.overdue <= 0 or agenda.is_expiring:
            work["clear"] = partial(self._clear, staging, leader_id)
        if agenda.purgeable_at <= 0:
            work["forget"] = lambda limit: staging.forget(limit=limit)
        failures = [error for kind in work if (error := self._try(kind, work[kind]))]
        if failures:
            raise failures[0]
        return _rest(agenda)

    def _try(self, kind: str, do: Callable[[int], object]) -> DatabaseError | None:
        """Do a chunk; return an error that concerns this kind of work only."""
        chunk = self._chunks[kind]
        try:
            do(chunk)
        except DatabaseError as error:
            if not isinstance(error, DatabaseBusy):
                self._chunks[kind] = max(1, chunk // 2)
            if isinstance(error, DatabaseUnavailable):
                raise
            return error
        self._chunks[kind] = min(MAX_CHUNK_ROWS, chunk + CHUNK_GROWTH)
        return None

    def _release(self, staging: Staging, limit: int) -> None:
        if released := staging.release(limit=limit):
            logger.debug(
                "%s staged records are in the outbox",
                released,
                extra={"action": "release", "records": released},
            )

    def _clear(self, staging: Staging, leader_id: str, limit: int) -> None:
        if series := staging.clear(limit=limit):
            logger.warning(
                "A series was not released in time; its %s records were %sed",
                series.messages,
                series.action,
                extra={"action": "series_expired", "records": series.messages},
            )
            self._on_expired(leader_id, series)


def _rest(agenda: StagingDeadlines) -> float:
    """Return the seconds until the next look; 0.0 when something was due."""
    if agenda.is_expiring:
        return 0.0
    return min(agenda.due, agenda.overdue, agenda.purgeable_at, MAX_INTERVAL)
