"""
An outbox table in memory, behind the relay's ports `SettledTable` and `Gauge`.

With marks in it, it is an `Outbox`. It passes the scenarios that the real table
passes (`tests/contracts`), so tests of the relay need no PostgreSQL.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Any
from uuid import uuid4

from django_outbox.exceptions import DatabaseBusy, DatabaseError, DatabaseUnavailable
from django_outbox.message.pauses import Pauses
from django_outbox.message.record import (
    Backlog,
    Failure,
    Identity,
    KeyToRead,
    Numbering,
    Record,
    Sweep,
    TopicCounts,
    size_of,
)
from django_outbox.settings.options import OutboxSettings

CAP = 100_000
"""Rows after which `backlog()` stops counting."""


@dataclass(slots=True)
class Row:
    """A row with the columns that leaders write."""

    record: Record
    leader_id: str | None = None
    last_error: str = ""


class InMemoryTable:
    """
    A table that any number of leaders and threads may share.

    Args:
        has_archive: keep purged records in `archived`.
        page_bytes: of the values of one page, but for its last row.
        clock: wall clock of this database, in seconds since the epoch.
    """

    def __init__(
        self,
        *,
        has_archive: bool = False,
        page_bytes: int = OutboxSettings().page_bytes,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.is_down = False
        """While True every call of a leader raises `DatabaseUnavailable`."""
        self.locked_ids: set[int] = set()
        """Rows on which writes of a leader raise `DatabaseBusy`."""
        self.refused_ids: set[int] = set()
        """Rows that a trigger keeps as they are: writes raise `DatabaseError`."""
        self.kept_ids: set[int] = set()
        """Rows that a trigger keeps without an error."""
        self.parked: list[Failure] = []
        """Parked records with their errors; attempts are counted."""
        self.archived: list[Record] = []
        """Purged records, if the table has an archive."""
        self.paused: list[tuple[str, str | None]] = []
        """Topics and keys that an operator has paused."""
        self._identity = Identity(str(uuid4()), "0/0")
        self._has_archive = has_archive
        self._page_bytes = page_bytes
        self._clock = clock
        self._rows: dict[int, Row] = {}
        self._last_id = 0
        self._lock = Lock()

    # Writers and readers of the table.

    def draw_id(self) -> int:
        """Take the next id, for a row that is committed later or never."""
        with self._lock:
            self._last_id += 1
            return self._last_id

    def insert(
        self, topic: str, key: str, value: str | bytes | None = None, **fields: Any
    ) -> Record:
        """Commit a row; see `make`."""
        record = self.make(topic, key, value, **fields)
        self.put([record])
        return record

    def make(
        self,
        topic: str,
        key: str,
        value: str | bytes | None = None,
        *,
        headers: Iterable[tuple[str, str | None]] = (),
        partition: int | None = None,
        record_id: int | None = None,
    ) -> Record:
        """Make a row to commit; `record_id` was drawn before or set by the test."""
        pairs = list(headers)
        return Record(
            id=self.draw_id() if record_id is None else record_id,
            topic=topic,
            key=key,
            value=value,
            header_keys=[name for name, _ in pairs],
            header_values=[value for _, value in pairs],
            partition=partition,
            message_id=str(uuid4()),
            created_at=str(round(self._clock() * 1_000_000)),
            cluster_id=0,
            attempts=0,
        )

    def put(self, records: Iterable[Record]) -> None:
        """Commit these rows at once."""
        with self._lock:
            self._rows.update((record.id, Row(record)) for record in records)

    def records(self) -> list[Record]:
        """All rows in id order."""
        with self._lock:
            return [row.record for _, row in sorted(self._rows.items())]

    def marks(self) -> Mapping[int, str | None]:
        """The leader id of each row."""
        with self._lock:
            return {n: row.leader_id for n, row in sorted(self._rows.items())}

    def errors(self) -> Mapping[int, str]:
        """The last error of each row; empty for none."""
        with self._lock:
            return {n: row.last_error for n, row in sorted(self._rows.items())}

    # The leader.

    def _fitting(self, records: Iterable[Record]) -> list[Record]:
        """Return the first records, up to the size of a page."""
        found, room = list(records), self._page_bytes
        if size_of(found) <= room:
            return found
        page: list[Record] = []
        for record in found:
            if room <= 0:
                break
            page.append(record)
            room -= size_of([record])
        return page

    def purge(self, leader_id: str | None, records: Sequence[Record]) -> int:
        with self._reached():
            rows = self._writable(leader_id, records)
            for row in rows:
                del self._rows[row.record.id]
            if self._has_archive:
                self.archived += [row.record for row in rows]
            return len(rows)

    def fail(self, leader_id: str, failures: Sequence[Failure]) -> int:
        errors = {failure.record.id: failure.error for failure in failures}
        with self._reached():
            rows = self._writable(leader_id, [failure.record for failure in failures])
            for row in rows:
                row.record = _tried_again(row.record)
                row.last_error = errors[row.record.id]
            return len(rows)

    def park(self, leader_id: str, failures: Sequence[Failure]) -> int:
        errors = {failure.record.id: failure.error for failure in failures}
        with self._reached():
            rows = self._writable(leader_id, [failure.record for failure in failures])
            for row in rows:
                del self._rows[row.record.id]
                error = errors[row.record.id]
                self.parked.append(Failure(_tried_again(row.record), error))
            return len(rows)

    def kept(self, leader_id: str | None, records: Sequence[Record]) -> set[int]:
        with self._reached():
            return {row.record.id for row in self._owned(leader_id, records)}

    def locked(self, records: Sequence[Record]) -> set[int]:
        with self._reached():
            return self.locked_ids & {record.id for record in records}

    def ping(self) -> None:
        with self._reached():
            pass

    def pauses(self) -> Pauses:
        with self._reached():
            return Pauses.of(self.paused)

    def backlog(self) -> Backlog:
        with self._reached():
            count = len(self._rows)
            if not count:
                return Backlog(0, is_capped=False, oldest_age=0.0)
            created_at = int(self._rows[min(self._rows)].record.created_at) / 1_000_000
            age = max(0.0, self._clock() - created_at)
            return Backlog(min(count, CAP), is_capped=count >= CAP, oldest_age=age)

    def topics(self, *, limit: int) -> TopicCounts:
        with self._reached():
            counts = Counter(row.record.topic for row in self._rows.values())
            largest = tuple(counts.most_common(limit))
            shown = sum(count for _, count in largest)
            return TopicCounts(largest, counts.total() - shown)

    def writer_ages(self) -> dict[str, float | None]:
        """Return nothing: a transaction of this table ends at once."""
        with self._reached():
            return {}

    def dead_tuples(self) -> int:
        """Return 0: what is deleted is gone."""
        with self._reached():
            return 0

    def numbering(self) -> Numbering | None:
        """Return nothing: the test chooses clusters and ids."""

    def identity(self) -> Identity:
        """Return the identity of this outbox."""
        with self._reached():
            return self._identity

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _reached(self) -> Lock:
        if self.is_down:
            raise DatabaseUnavailable
        return self._lock

    def _writable(self, leader_id: str | None, records: Sequence[Record]) -> list[Row]:
        """Return the rows that a leader writes; a locked or refused one raises."""
        rows = self._owned(leader_id, records)
        ids = {row.record.id for row in rows}
        if ids & self.locked_ids:
            raise DatabaseBusy
        if refused := ids & self.refused_ids:
            raise DatabaseError(f"a trigger refuses {sorted(refused)}")
        return [row for row in rows if row.record.id not in self.kept_ids]

    def _owned(self, leader_id: str | None, records: Iterable[Record]) -> list[Row]:
        """Return the rows of these records that the leader may write."""
        if leader_id is None:
            return self._identified(records)
        rows = (self._rows.get(record.id) for record in records)
        return [row for row in rows if row and row.leader_id == leader_id]

    def _identified(self, records: Iterable[Record]) -> list[Row]:
        """Compare rows by message id: another row may have the same id by now."""
        pairs = [(self._rows.get(record.id), record) for record in records]
        return [
            row
            for row, record in pairs
            if row and row.record.message_id == record.message_id
        ]


class InMemoryOutbox(InMemoryTable):
    """The same with the marks of leaders in it."""

    def begin(self) -> None:
        """Do nothing: the marks of a leader id are in the table."""

    def timeline(self) -> str:
        """Name no timeline: a row that is there again has no mark."""
        return ""

    def mark(
        self, leader_id: str, *, limit: int, sweep: Sweep | None = None
    ) -> list[Record]:
        with self._reached():
            rows = (row for _, row in sorted(self._rows.items()))
            free = (row for row in rows if row.leader_id != leader_id)
            records = self._fitting(row.record for row in islice(free, limit))
            for record in records:
                self._rows[record.id].leader_id = leader_id
            return records

    def reset(self, leader_id: str, keys: Sequence[KeyToRead]) -> None:
        wanted, lows = {key for key, _ in keys}, {low for _, low in keys}
        with self._reached():
            rows = [
                row
                for row in self._rows.values()
                if row.leader_id == leader_id
                and (row.record.ordering_key in wanted or row.record.id in lows)
            ]
            for row in rows:
                row.leader_id = None


def _tried_again(record: Record) -> Record:
    return record._replace(attempts=record.attempts + 1)
