"""
An outbox table in memory, behind the ports of relays that mark nothing in it.

Without marks it matters how rows are committed: transactions draw ids early and
commit late, or never; a failover resets the table to the state of a standby, and
ids are assigned again. It passes the scenarios that the real table passes
(`tests/contracts`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from math import inf
from typing import Any
from zlib import crc32

from django_outbox.exceptions import DatabaseUnavailable
from django_outbox.message.record import Failure, KeyToRead, Record, Sweep
from django_outbox.relay.ports import Others

from .outbox import InMemoryTable, Row


@dataclass(frozen=True, slots=True)
class InMemoryStandby:
    """The state that a standby had replicated when it fell behind."""

    records: Sequence[Record]
    parked: Sequence[Failure]
    last_id: int


class InMemoryUnmarked(InMemoryTable):
    """A table that any number of writers, leaders and threads may share."""

    id_increment = 1
    shard = 0
    shards = 1
    """How many there are."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._timeline = 1
        self._locks: dict[str, bool] = {}
        """Transactions that have inserted rows, and whether each is prepared."""
        self._names = 0

    # The application.

    def begin(self) -> InMemoryTransaction:
        """Begin a transaction of the application."""
        return InMemoryTransaction(self)

    def lock(self, *, is_prepared: bool = False) -> str:
        """Take the lock of an INSERT, under a name never used before."""
        with self._lock:
            self._names += 1
            name = f"-1/{self._names}" if is_prepared else f"3/{self._names}"
            self._locks[name] = is_prepared
            return name

    def end(self, name: str, records: Iterable[Record] = ()) -> None:
        """
        Commit these rows and give the lock back.

        Raises:
            DatabaseUnavailable: the transaction went down with its server.
        """
        with self._lock:
            if self._locks.pop(name, None) is None:
                raise DatabaseUnavailable
            self._rows.update((record.id, Row(record)) for record in records)

    # Operators and disasters.

    def standby(self) -> InMemoryStandby:
        """Return the state of a standby that stops replicating now."""
        return InMemoryStandby(self.records(), list(self.parked), self._last_id)

    def promote(self, standby: InMemoryStandby) -> None:
        """Continue from a standby: purged rows are back, ids are assigned again."""
        with self._lock:
            self._rows = {record.id: Row(record) for record in standby.records}
            self.parked = list(standby.parked)
            self._last_id = standby.last_id
            self._locks.clear()
            self._timeline += 1

    # The leader.

    def of_shard(self, shard: int, shards: int) -> InMemoryUnmarked:
        """Return the same table as the leader of a shard reads it."""
        view = copy.copy(self)
        view.shard, view.shards = shard, shards
        return view

    def page(
        self,
        position: int,
        gaps: Sequence[tuple[int, int]],
        keys_to_read: Sequence[KeyToRead] = (),
        *,
        limit: int,
        end: int | None = None,
    ) -> list[Record]:
        is_of_keys = _of_keys(keys_to_read, position)
        last = inf if end is None else end

        def times(record: Record) -> int:
            """How often the page has a row: once for each reason to show it."""
            is_late = any(low <= record.id <= high for low, high in gaps)
            is_next = position < record.id <= last
            return self.is_mine(record) * (is_late + is_next + is_of_keys(record))

        return self._read(times, limit)

    def others(self, position: int, *, limit: int) -> Others:
        with self._reached():
            rows = (self._rows[number].record for number in sorted(self._rows))
            after = (record for record in rows if record.id > position)
            found = list(islice(after, limit * self.shards))
        ids = [record.id for record in found if not self.is_mine(record)]
        end = found[-1].id if found else position
        return Others(ids, end, own=len(found) - len(ids))

    def writers(self) -> tuple[frozenset[str], bool]:
        with self._reached():
            return frozenset(self._locks), any(self._locks.values())

    def sweep(self, position: int, sweep: Sweep, *, limit: int) -> list[Record]:
        def is_left(record: Record) -> bool:
            return (
                self.is_mine(record)
                and record.id <= position
                and record.id not in sweep.known
                and record.ordering_key not in sweep.passed
                and record.topic not in sweep.passed_topics
            )

        return self._read(is_left, limit)

    def is_mine(self, record: Record) -> bool:
        """Whether the row belongs to this shard."""
        if self.shards == 1:
            return True
        ordering_key = "\n".join(record.ordering_key).encode()
        return crc32(ordering_key) % self.shards == self.shard

    def database_timeline(self) -> str:
        with self._reached():
            return f"memory/{self._timeline:08X}"

    def _read(self, times: Callable[[Record], int], limit: int) -> list[Record]:
        """Return the first rows that fit a page, in id order, each so many times."""
        with self._reached():
            rows = (self._rows[number].record for number in sorted(self._rows))
            shown = chain.from_iterable(repeat(row, times(row)) for row in rows)
            return self._fitting(islice(shown, limit))

    def _owned(self, leader_id: str | None, records: Iterable[Record]) -> list[Row]:
        """Return the rows of these records: nobody marks them."""
        return self._identified(records)


def _of_keys(
    keys_to_read: Sequence[KeyToRead], position: int
) -> Callable[[Record], bool]:
    if not keys_to_read:
        return lambda _: False
    low = min(low for _, low in keys_to_read)
    ordering_keys = {key for key, _ in keys_to_read}
    return lambda record: (
        low <= record.id <= position and record.ordering_key in ordering_keys
    )


class InMemoryTransaction:
    """A transaction of the application: it draws ids now, its commit shows the rows."""

    def __init__(self, table: InMemoryUnmarked) -> None:
        self._table = table
        self._records: list[Record] = []
        self._name = ""

    def insert(
        self, topic: str, key: str, value: str | bytes | None = None, **fields: Any
    ) -> Record:
        """Draw an id for a row that is not visible yet; return the row."""
        if not self._name:
            # The lock comes before the id.
            self._name = self._table.lock()
        record = self._table.make(topic, key, value, **fields)
        self._records.append(record)
        return record

    def prepare(self) -> None:
        """Prepare for two-phase commit; the lock has another name then."""
        former = self._name
        self._name = self._table.lock(is_prepared=True)
        self._table.end(former)

    def commit(self) -> None:
        """Show all rows at once."""
        self._end(self._records)

    def rollback(self) -> None:
        """Show none, and leave a gap where ids were drawn."""
        self._end([])

    def _end(self, records: Sequence[Record]) -> None:
        name, self._name = self._name, ""
        if name:
            self._table.end(name, records)
