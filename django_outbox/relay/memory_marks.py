"""
Marks in the memory of the leader: which rows it has read, and which to read again.

It implements the same port as marks in the table (setting MARKS) and costs
one row version fewer for each record; a million dead rows do not slow it. Its
state belongs to one leader id, and a new id begins at the head of the table.
Rows are found by a position and the gaps behind it; a sweep finds what no reasoning
about gaps can (ids set by hand, a sequence moved back, a row restored).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from ..exceptions import DatabaseSlow, DatabaseUnavailable
from ..message.pauses import Pauses
from ..message.record import HIGHEST_ID, KeyToRead, OrderingKey, Record, Sweep
from .gaps import Gaps
from .ports import Others, UnmarkedTable

logger = logging.getLogger(__name__)


WRITERS_INTERVAL: Final = 0.05
"""Seconds between two queries for open writers, which are made only while there are
gaps."""


MOST_LOOKS: Final = 20
"""Reads in a row that may find nothing but rows of other shards: each costs a few
milliseconds."""


class Cursor:
    """
    Read position of one leader in a table without marks.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, table: UnmarkedTable, clock: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock
        self._gaps = Gaps(id_increment=table.id_increment)
        self._asked_at = 0.0
        self._was_full = False

    @property
    def position(self) -> int:
        """The highest id that was shown."""
        return self._gaps.position

    def advance(
        self, keys_to_read: Sequence[KeyToRead] = (), *, limit: int
    ) -> list[Record]:
        """Read the next page, and the rows of these keys up to the position."""
        records, has_passed_others = self._look(keys_to_read, limit)
        for _ in range(MOST_LOOKS):
            if records or not has_passed_others:
                break
            records, has_passed_others = self._look((), limit)
        return records

    def _look(
        self, keys_to_read: Sequence[KeyToRead], limit: int
    ) -> tuple[list[Record], bool]:
        """Read a page; tell, too, if it passed the most rows of others that it may."""
        gaps = self._gaps
        is_shared = self._table.shards > 1
        others = self._table.others(gaps.position, limit=limit) if is_shared else None
        records: list[Record] = []
        # Of several shards most pages would be empty, and are not asked for.
        if others is None or others.own or gaps or keys_to_read:
            records = self._table.page(
                gaps.position,
                gaps.ranges,
                keys_to_read,
                limit=limit,
                end=others.end if others else None,
            )
        if self._is_waiting():
            records, others = [r for r in records if r.id <= gaps.position], None
        gaps.shown(_with_others([record.id for record in records], others))
        now = self._clock()
        if gaps.are_waiting and now >= self._asked_at + WRITERS_INTERVAL:
            self._asked_at = now
            writers, is_one_prepared = self._table.writers()
            gaps.note_writers(writers, is_one_prepared=is_one_prepared)
        most = limit * self._table.shards
        return records, others is not None and len(others.ids) == most

    def _is_waiting(self) -> bool:
        """Whether the position waits for open transactions; log when it begins to."""
        is_full = self._gaps.is_full
        if is_full and not self._was_full:
            logger.warning(
                "%d gaps in the ids belong to open transactions; no later record is "
                "read until one of these transactions ends",
                len(self._gaps),
                extra={"action": "gaps_full", "gaps": len(self._gaps)},
            )
        self._was_full = is_full
        return is_full

    def swept(self, sweep: Sweep, *, limit: int) -> list[Record]:
        """Read what the sweep does not pass, up to the position or in all the table."""
        position = HIGHEST_ID if sweep.is_whole else self.position
        try:
            records = self._table.sweep(position, sweep, limit=limit)
        except DatabaseSlow as error:
            # It reads what is paused or dead, too, and costs no position.
            logger.info(
                "A repair scan did not end in time: %s",
                error,
                extra={"action": "swept"},
            )
            return []
        self._gaps.found([record.id for record in records])
        return records


class Connected(UnmarkedTable, Protocol):
    """A table behind a connection of its own."""

    def pauses(self) -> Pauses:
        """Return what is not to be sent for now."""

    def ping(self) -> None:
        """Ask the table for nothing, to learn whether it can be reached."""

    def close(self) -> None:
        """Close the connection; the next call opens another one."""


class MemoryMarks:
    """
    The marks of one leader, as the port `ReadTable` has them.

    Args:
        clock: monotonic seconds.
        timeline: names the timeline of the database behind the connection. Another
            one may assign ids again, which says nothing of what was shown.
        by_scans: whether all is read by sweeps of the whole table.
    """

    def __init__(
        self,
        table: Connected,
        *,
        clock: Callable[[], float],
        timeline: Callable[[], str],
        by_scans: bool = False,
    ) -> None:
        self._by_scans = by_scans
        self._table = table
        self._clock = clock
        self._read_timeline = timeline
        self.begin()

    def begin(self) -> None:
        """Forget what was shown; see the port."""
        self._cursor = Cursor(self._table, self._clock)
        self._again: dict[OrderingKey, int] = {}
        self._timeline: str | None = None

    def mark(
        self, leader_id: str, *, limit: int, sweep: Sweep | None = None
    ) -> list[Record]:
        """Read what this leader was not shown; see the port."""
        if self._timeline is None:
            self.timeline()
        records = self._read(limit, sweep)
        # After the page: a failover between the two voids the page, too.
        self._check(self._read_timeline())
        return records

    def timeline(self) -> str:
        """Name the timeline of the next pages; see the port."""
        self._timeline = self._read_timeline()
        return self._timeline

    def _read(self, limit: int, sweep: Sweep | None) -> list[Record]:
        if sweep is not None:
            # What lies of reset keys comes with the next page.
            passed = (*sweep.passed, *self._again)
            return self._cursor.swept(sweep._replace(passed=passed), limit=limit)
        if not self._again:
            return self._cursor.advance(limit=limit)
        position = self._cursor.position
        keys_to_read = [
            KeyToRead(ordering_key, low) for ordering_key, low in self._again.items()
        ]
        records = self._cursor.advance(keys_to_read, limit=limit)
        self._advance(records[-1].id if records else position, position)
        return _once_each(records)

    def reset(self, leader_id: str, keys: Iterable[KeyToRead]) -> None:
        """Read the rows of these keys up to the position again; see the port."""
        if self._by_scans:
            # The next scan that does not pass them shows it.
            return
        for ordering_key, low in keys:
            self._again[ordering_key] = min(low, self._again.get(ordering_key, low))

    def pauses(self) -> Pauses:
        """Return what is not to be sent for now; see the port."""
        return self._table.pauses()

    def ping(self) -> None:
        """Ask the table for nothing; see the port."""
        self._table.ping()

    def close(self) -> None:
        """Close the table's connection; the next call opens another one."""
        self._table.close()

    def _check(self, timeline: str) -> None:
        """Give the page up if it may be of another timeline than those before."""
        former = self._timeline
        if timeline != former:
            logger.warning(
                "The database is on another timeline (%s, was %s); sending every row "
                "in the outbox again",
                timeline,
                former,
                extra={"action": "timeline_changed"},
            )
            raise DatabaseUnavailable("The database is on another timeline.")

    def _advance(self, end: int, position: int) -> None:
        """Note that reset keys were shown up to `end`."""
        if end >= position:
            self._again.clear()
            return
        for ordering_key, low in self._again.items():
            self._again[ordering_key] = max(low, end + 1)


def _with_others(ids: list[int], others: Others | None) -> list[int]:
    """Add the ids of other shards' rows up to the last one of a page, in order."""
    if others is None:
        return ids
    last = ids[-1] if ids else others.end
    return sorted({*ids, *others.ids[: bisect_right(others.ids, last)]})


def _once_each(records: Iterable[Record]) -> list[Record]:
    """Drop the second of two equal rows; keep the order."""
    return list({record.id: record for record in records}.values())
