"""
The settling side: purge what is acknowledged, note what failed, park.

`advance()` is one attempt, repeated if necessary. No settlement is given up while its
process harvests: to purge an acknowledged record is right at any time, since a write
is limited to the rows that the leader has read or marked.

No row stops the others: rows that another session has locked, and rows that a trigger
or a foreign key does not release, become the `rest` of their settlement. The
dispatcher submits the rest again later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from ..exceptions import (
    DatabaseBusy,
    DatabaseError,
    DatabaseSlow,
    DatabaseUnavailable,
)
from ..message.record import Failure, Record
from .availability import Availability, OutageLog
from .failure_log import FailureLog
from .ports import SettledTable
from .settlement import Settled, Settlement

logger = logging.getLogger(__name__)

MAX_PARTS: Final = 200
"""Statements with which one attempt looks for the rows that the table refuses."""

MAX_CHUNK_ROWS: Final = 10_000
"""Most rows of one statement."""

CHUNK_DIVISOR: Final = 16
"""After a statement timed out, the next one has this many times fewer rows: a second
time-out in a row may end the leader's term."""

CHUNK_GROWTH: Final = 50
"""Rows that are added to the chunk after each statement that was in time."""

FIRST_PAUSE: Final = 0.1
"""Seconds before the first attempt at a rest; each failure doubles them."""

LAST_PAUSE: Final = 5.0
"""Seconds between later attempts."""

MAX_LOGGED_IDS: Final = 10
"""Ids that one log line lists."""

Row: TypeAlias = Record | Failure

Write: TypeAlias = Callable[[Any, Sequence[Any]], int]
"""One kind of write, for a leader id and rows; returns how many rows there were."""


class Attempt:
    """The progress of one settlement; owned by the settler until it is done."""

    def __init__(self, settlement: Settlement) -> None:
        self.settlement = settlement
        self.has_begun = False
        self.purged = 0
        """Rows that the purge deleted."""
        self.parked = 0
        """Rows that were moved to the parked table."""
        self.unpurged = [*settlement.acknowledged]
        """Records whose rows the table has not answered for."""
        self.unnoted = [*settlement.failed]
        """Failures whose attempts are not counted in the table yet."""
        self.unparked = [*settlement.poisoned]
        """Failures whose rows are not moved yet."""
        self.rest = Settlement(
            leader_id=settlement.leader_id, tries=settlement.tries + 1
        )
        """Rows that the table does not release."""

    @property
    def purged_records(self) -> list[Record]:
        """Acknowledged records but those of the rest."""
        return _others(self.settlement.acknowledged, self.rest.acknowledged)

    @property
    def parked_failures(self) -> list[Failure]:
        """Poisoned records but those of the rest."""
        return _others(self.settlement.poisoned, self.rest.poisoned)

    def settled(self) -> Settled:
        """Return the outcome."""
        assert not self.unpurged, "the table has not answered"
        return Settled(
            settlement=self.settlement,
            acknowledged=self.purged_records,
            poisoned=self.parked_failures,
            purged=self.purged,
            parked=self.parked,
            rest=self.rest if len(self.rest) else None,
        )


class Settler:
    """
    Carries settlements to the table.

    Args:
        on_parked: told of each record that now lies in the parked table.
        clock: monotonic seconds.
        outage_log: shared by all connections that would meet the same outage.
    """

    def __init__(
        self,
        *,
        outbox: SettledTable,
        on_parked: Callable[[str, Failure], None],
        clock: Callable[[], float],
        outage_log: OutageLog | None = None,
    ) -> None:
        self.outage = Availability(outage_log=outage_log)
        self._outbox = outbox
        self._on_parked = on_parked
        self._clock = clock
        self._failure_log = FailureLog(clock)
        self._expects_locks_until = 0.0
        """Monotonic seconds until which each write looks for locked rows first,
        instead of waiting for one until the time-out."""
        self._chunk = MAX_CHUNK_ROWS
        self._cause = ""
        """Why the last row was left to a rest."""

    def advance(self, attempt: Attempt) -> float | None:
        """
        Try once to bring the table in line with a settlement.

        Returns None when that is done for all rows but the rest, or, while the table
        is out of reach, the time (monotonic seconds) of the next try.
        """
        try:
            self._carry_out(attempt)
        except DatabaseError as error:
            return self.outage.lost(error, self._clock())
        self.outage.reached(self._clock())
        for failure in attempt.parked_failures:
            self._on_parked(attempt.settlement.leader_id, failure)
        return None

    def _carry_out(self, attempt: Attempt) -> None:
        outbox, settlement = self._outbox, attempt.settlement
        leader_id, rest = settlement.leader_id, attempt.rest
        if not attempt.has_begun:
            attempt.has_begun = True
            if not settlement.is_rest:
                self._failure_log.note(settlement.failed + settlement.poisoned)
        # B1: the records are in the log, so their rows go.
        self._purge(attempt)
        # A failure that cannot be noted delays nothing: the record is retried.
        left: list[Failure] = []
        for _ in self._write(outbox.fail, leader_id, attempt.unnoted, left):
            pass
        _warn(left, "Cannot note a failed delivery", self._cause)
        rows = attempt.unparked
        for count in self._write(outbox.park, leader_id, rows, rest.poisoned):
            attempt.parked += count
        self._plan_rest(attempt)

    def _purge(self, attempt: Attempt) -> None:
        purge, settlement = self._outbox.purge, attempt.settlement
        # A later id of this process may have marked what was left.
        leader_id = None if settlement.is_rest else settlement.leader_id
        rows, stuck = attempt.unpurged, attempt.rest.acknowledged
        for count in self._write(purge, leader_id, rows, stuck):
            attempt.purged += count

    def _plan_rest(self, attempt: Attempt) -> None:
        """Plan the next attempt at what was left, and log it at the first one."""
        settlement, rest = attempt.settlement, attempt.rest
        if not len(rest):
            return
        if not settlement.is_rest:
            rows: list[Row] = [*rest.acknowledged, *rest.poisoned]
            _warn(rows, "Cannot settle a row, retrying it apart", self._cause)
        pause = FIRST_PAUSE * 2.0 ** min(settlement.tries, 32)
        retry_at = self._clock() + min(pause, LAST_PAUSE)
        attempt.rest = replace(rest, retry_at=retry_at)

    def _write(
        self, write: Write, leader_id: str | None, rows: list[Any], stuck: list[Any]
    ) -> Iterator[int]:
        """
        Write rows; move those that the table does not release to `stuck`.

        Yields how many rows there were in each part, which is then taken out of `rows`.
        While the server takes too long, a part has fewer rows.
        """
        while rows:
            part = rows[: self._chunk]
            taken = len(part)
            try:
                count = self._write_part(write, leader_id, part, stuck)
            except DatabaseError as error:
                rows[:taken] = part
                if not isinstance(error, DatabaseSlow):
                    raise
                self._take_fewer(len(part))
                if taken == 1:
                    raise
                self.outage.lost(error, self._clock())
                continue
            self.outage.reached(self._clock())
            self._chunk = min(MAX_CHUNK_ROWS, self._chunk + CHUNK_GROWTH)
            del rows[:taken]
            yield count

    def _take_fewer(self, rows: int) -> None:
        self._chunk = max(1, rows // CHUNK_DIVISOR)

    def _write_part(
        self, write: Write, leader_id: str | None, rows: list[Any], stuck: list[Any]
    ) -> int:
        """Write these rows, but those that it moves to `stuck`."""
        if self._clock() < self._expects_locks_until:
            self._move_locked(rows, stuck)
        if not rows:
            return 0
        try:
            return self._write_now(write, leader_id, rows, stuck)
        except DatabaseUnavailable:
            raise
        except DatabaseBusy:
            if not self._move_locked(rows, stuck):
                # Perhaps a trigger or a foreign key has met the time-out.
                self._take_fewer(len(rows))
                raise
        except DatabaseError:
            # Without rows this fails, too, if no single row is at fault.
            write(leader_id, [])
            return self._write_parts(write, leader_id, rows, stuck)
        return self._write_part(write, leader_id, rows, stuck)

    def _write_now(
        self, write: Write, leader_id: str | None, rows: list[Any], stuck: list[Any]
    ) -> int:
        """Write rows at once; move those that a trigger keeps without an error."""
        count = write(leader_id, rows)
        if count < len(rows):
            kept = self._outbox.kept(leader_id, [_record_of(row) for row in rows])
            if kept:
                self._cause = "a trigger, a rule or a policy keeps it"
                self._move(kept, rows, stuck)
        return count

    def _move_locked(self, rows: list[Any], stuck: list[Any]) -> int:
        """Move rows that another session has locked; return how many."""
        locked = self._outbox.locked([_record_of(row) for row in rows]) if rows else ()
        if locked:
            self._expects_locks_until = self._clock() + 2 * LAST_PAUSE
            self._cause = "another session has locked it"
            self._move(locked, rows, stuck)
        return len(locked)

    def _move(self, ids: set[int], rows: list[Any], stuck: list[Any]) -> None:
        stuck += [row for row in rows if _record_of(row).id in ids]
        rows[:] = [row for row in rows if _record_of(row).id not in ids]

    def _write_parts(
        self, write: Write, leader_id: str | None, rows: list[Any], stuck: list[Any]
    ) -> int:
        """Find the rows that the table refuses by bisection, and write all others."""
        count, written = 0, list[Any]()
        refused, parts = list[Any](), [[*rows]]
        for _ in range(MAX_PARTS):
            if not parts:
                break
            part = parts.pop()
            try:
                count += self._write_now(write, leader_id, part, refused)
                written += part
            except DatabaseError as error:
                self._cause = str(error)
                if isinstance(error, DatabaseUnavailable):
                    parts.append(part)
                    break
                if len(part) == 1:
                    refused += part
                else:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
        rows[:] = written
        # The next attempt begins with the rows that this one has not reached.
        for part in reversed(parts):
            stuck += part
        stuck += refused
        return count


def _record_of(row: Row) -> Record:
    return row.record if isinstance(row, Failure) else row


def _others(rows: Sequence[Any], stuck: Sequence[Any]) -> list[Any]:
    """Return the rows that are not stuck."""
    if not stuck:
        return [*rows]
    ids = {_record_of(row).id for row in stuck}
    return [row for row in rows if _record_of(row).id not in ids]


def _warn(rows: Sequence[Row], what: str, cause: str) -> None:
    """Log rows that the table does not release."""
    if not rows:
        return
    ids = ", ".join(str(_record_of(row).id) for row in rows[:MAX_LOGGED_IDS])
    logger.warning(
        "%s: %s%s: %s",
        what,
        f"record {ids}",
        f" and {len(rows) - MAX_LOGGED_IDS} more" if len(rows) > MAX_LOGGED_IDS else "",
        cause,
        extra={"action": "settlement_stuck", "records": len(rows)},
    )
