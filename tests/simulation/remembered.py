"""
MP/R with its marks in memory: the table, the way to it, a life, the history.

The table knows its rows by their ids only, which are never given again here,
and the transactions that hold the lock of an INSERT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from django_outbox.message.record import KeyToRead, OrderingKey, Record, Sweep
from django_outbox.relay.memory_marks import MemoryMarks

from .broker import Broker, Request
from .ledger_connection import UnmarkedConnection
from .ledger_writers import LedgerWriters
from .process import Process
from .promises import Promises
from .table import Row, Table
from .world import World

if TYPE_CHECKING:
    from .node import Node


class RememberedTable(Table):
    """Any leader may settle any row that it has read."""

    has_failed_over = False

    def __init__(self) -> None:
        super().__init__()
        self._last_id = 0
        self._names = 0
        self._locks: dict[str, bool] = {}

    # What transactions of the application do.

    def draw_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def lock(self, *, is_prepared: bool = False) -> str:
        self._names += 1
        name = f"{'-1' if is_prepared else '3'}/{self._names}"
        self._locks[name] = is_prepared
        return name

    def commit(self, rows: Iterable[Row], name: str = "") -> bool:
        super().commit(rows)
        self._locks.pop(name, None)
        return True

    def roll_back(self, name: str) -> None:
        self._locks.pop(name, None)

    # What leaders do.

    def page(
        self,
        position: int,
        gaps: Sequence[tuple[int, int]],
        keys_to_read: Sequence[KeyToRead],
        *,
        limit: int,
    ) -> list[Record]:
        low = min((low for _, low in keys_to_read), default=0)
        ordering_keys = {key for key, _ in keys_to_read}
        return self._first(
            lambda record: (
                self.is_mine(record)
                and (
                    record.id > position
                    or any(first <= record.id <= last for first, last in gaps)
                    or (record.id >= low and record.ordering_key in ordering_keys)
                )
            ),
            limit,
        )

    def sweep(self, position: int, sweep: Sweep, *, limit: int) -> list[Record]:
        return self._first(
            lambda record: (
                self.is_left(record, position)
                and record.id not in sweep.known
                and record.ordering_key not in sweep.passed
                and record.topic not in sweep.passed_topics
            ),
            limit,
        )

    def is_mine(self, record: Record) -> bool:
        """Whether a page may show this row."""
        return True

    def is_left(self, record: Record, position: int) -> bool:
        """Whether a sweep may find this row."""
        return record.id <= position

    def writers(self) -> tuple[frozenset[str], bool]:
        return frozenset(self._locks), any(self._locks.values())

    def _first(self, is_wanted: Callable[[Record], bool], limit: int) -> list[Record]:
        rows = (self.rows[id].record for id in self._order)
        return list(islice(filter(is_wanted, rows), limit))

    def _marked_by(self, leader_id: str, ids: Sequence[int]) -> list[Row]:
        return [self.rows[id] for id in ids if id in self.rows]

    def _touch(self, row: Row, leader_id: str) -> None:
        """No row is anybody's own."""


class MarkedInMemory:
    """Adds the marks of a leader to one thread's view of the table."""

    _world: World
    _process: Process
    _marks: MemoryMarks

    def mark(
        self, leader_id: str, *, limit: int, sweep: Sweep | None = None
    ) -> list[Record]:
        self._world.promises.on_act(self._process, leader_id, "marks")
        return self._marks.mark(leader_id, limit=limit, sweep=sweep)

    def begin(self) -> None:
        self._marks.begin()

    def timeline(self) -> str:
        return self._marks.timeline()

    def reset(self, leader_id: str, keys: Sequence[KeyToRead]) -> None:
        self._marks.reset(leader_id, keys)


class RememberedConnection(MarkedInMemory, UnmarkedConnection):
    """The same on a database that never fails over."""

    _table: RememberedTable

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._marks = MemoryMarks(self, clock=process.clock, timeline=lambda: "")

    def purge(self, leader_id: str | None, records: Sequence[Record]) -> int:
        ids = [record.id for record in records]

        def statement() -> int:
            purged = self._table.purge(leader_id, ids)
            self._world.promises.on_purged(self._process, records)
            return purged

        return self._write("purge", ids, statement)


class RememberedPromises(Promises):
    """The judge of one history."""

    def on_purged(self, process: Process, records: Iterable[Record]) -> None:
        """Only one record of a key is in flight."""

    def reign_of(self, process: Process) -> object:
        """One that marks in memory knows what it has sent under any of its ids."""
        return self._reigns

    def _may_go(self, record: Record, first: int | None) -> bool:
        # A purge of the former leader may take effect late, after the row was
        # read: it is sent once more, still before those behind it.
        return first is None or record.id <= first

    def check_earlier(self, process: Process, record: Record) -> None:
        """Check that all earlier rows of its key are logged, or under way."""
        world = self._world
        logged = {r.record.id for r in world.broker.log.get(record.ordering_key, ())}
        assert process.producer is not None
        under_way = process.producer.under_way()
        for id, row in world.table.rows.items():
            is_earlier = (
                id < record.id
                and row.record.ordering_key == record.ordering_key
                and row.record.cluster_id == record.cluster_id
            )
            if is_earlier and id not in logged and id not in under_way:
                self._break(
                    "P-BARRIER",
                    f"{process.name} produces {record.id} of {record.ordering_key}"
                    f" before {id}",
                )


class PipelinedPromises(RememberedPromises):
    """The judge where any number of records of a key may be in flight."""

    def on_produce(self, process: Process, record: Record) -> None:
        """P-BARRIER: each earlier row of its key is in the log, or under way to it."""
        self.check_earlier(process, record)

    def on_purged(self, process: Process, records: Iterable[Record]) -> None:
        """P-PREFIX: what a crash repeats of a key has no holes."""
        world = self._world
        if world.plan.weather.row_refused:
            # Rows beside a refused one wait for the next attempt, too.
            return
        newest: dict[OrderingKey, int] = {}
        for record in records:
            key = record.ordering_key
            newest[key] = max(record.id, newest.get(key, record.id))
        for id, row in world.table.rows.items():
            last = newest.get(row.record.ordering_key, id)
            if id < last:
                what = f"{process.name} purges {last} of {row.record.ordering_key}"
                self._break("P-PREFIX", f"{what} before {id}")

    def on_append(self, request: Request) -> None:
        """P-PHANTOM and P-REWIND: what comes after a later record is a repeat."""
        log = self._world.broker.log.get(request.record.ordering_key, ())
        if all(earlier.record.id != request.record.id for earlier in log):
            super().on_append(request)

    def at_end(self) -> None:
        super().at_end()
        for ordering_key, requests in self._world.broker.log.items():
            last: dict[int, int] = {}
            """Of each producer, the last record of this key."""
            for request in requests:
                producer, id = request.producer.serial, request.record.id
                if id < last.get(producer, id):
                    self._break(
                        "P-REWIND", f"repeats of {ordering_key} are not in order"
                    )
                last[producer] = id


class RememberedProcess(Process):
    """One life of a harvester process that marks in memory."""

    def connect(self) -> RememberedConnection:
        return RememberedConnection(self)


class RememberedWorld(World):
    """The same nodes, group and faults as for marks in the table."""

    def _furnish(self) -> None:
        self.table: RememberedTable = RememberedTable()
        judge = PipelinedPromises if self.plan.is_pipelined else RememberedPromises
        self.promises = judge(self)
        self.broker = Broker(self)
        self.writers: LedgerWriters = LedgerWriters(self)

    def make_process(self, node: Node) -> RememberedProcess:
        return RememberedProcess(node)
