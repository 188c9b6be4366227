"""
The outbox table: what is committed, who has marked it, what a statement does.

Statements take effect at the moment of the call; `connection.py` adds the way
to the server and back. Truths that no leader sees, such as every row that was
ever committed, are kept for the promises.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django_outbox.message.record import Failure, OrderingKey, Record


@dataclass(slots=True)
class Row:
    """One row, with what only the simulator knows of it."""

    record: Record
    poison: str = ""
    """What the broker has against it: "topic", "size", or nothing."""
    leader_id: str | None = None


class Table:
    """Committed rows in the order of their ids."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.committed: dict[int, Row] = {}
        """Every row that was ever committed."""
        self.parked: dict[int, Row] = {}
        self.trespasses: list[tuple[str, int]] = []
        """Leader ids, and rows of another's that they changed."""
        self.robbed: set[str] = set()
        """Leader ids of which another one has taken marks over."""
        self._order: list[int] = []

    # What transactions of the application do.

    def commit(self, rows: Iterable[Row]) -> None:
        """Make the rows of one transaction visible."""
        for row in rows:
            id = row.record.id
            self.rows[id] = self.committed[id] = row
            insort(self._order, id)

    def first_of(self, ordering_key: OrderingKey) -> int | None:
        """Return the lowest id of a key that is still in the table."""
        for id in self._order:
            if self.rows[id].record.ordering_key == ordering_key:
                return id
        return None

    # What leaders do: the statements of postgres/queries.sql.

    def mark(self, leader_id: str, limit: int) -> list[Record]:
        page: list[Record] = []
        for id in self._order:
            row = self.rows[id]
            if row.leader_id != leader_id:
                if row.leader_id is not None:
                    self.robbed.add(row.leader_id)
                row.leader_id = leader_id
                page.append(row.record)
                if len(page) == limit:
                    break
        return page

    def reset(self, leader_id: str, ordering_keys: Sequence[OrderingKey]) -> int:
        ids = [
            i
            for i, row in self.rows.items()
            if row.record.ordering_key in ordering_keys
        ]
        mine = self._marked_by(leader_id, ids)
        for row in mine:
            self._touch(row, leader_id)
            row.leader_id = None
        return len(mine)

    def purge(self, leader_id: str | None, ids: Sequence[int]) -> int:
        mine = self._writable(leader_id, ids)
        for row in mine:
            self._delete(row, leader_id or row.leader_id)
        return len(mine)

    def fail(self, leader_id: str, failures: Sequence[Failure]) -> int:
        mine = self._marked_by(leader_id, [f.record.id for f in failures])
        for row in mine:
            self._touch(row, leader_id)
            row.record = row.record._replace(attempts=row.record.attempts + 1)
        return len(mine)

    def park(self, leader_id: str, failures: Sequence[Failure]) -> int:
        mine = self._marked_by(leader_id, [f.record.id for f in failures])
        for row in mine:
            self._delete(row, leader_id)
            self.parked[row.record.id] = row
        return len(mine)

    def kept(self, leader_id: str | None, ids: Sequence[int]) -> set[int]:
        return {row.record.id for row in self._writable(leader_id, ids)}

    def _writable(self, leader_id: str | None, ids: Sequence[int]) -> list[Row]:
        """Return the rows that a leader has marked; without one, all that are there."""
        if leader_id is not None:
            return self._marked_by(leader_id, ids)
        return [self.rows[id] for id in ids if id in self.rows]

    def _marked_by(self, leader_id: str, ids: Sequence[int]) -> list[Row]:
        rows = (self.rows.get(id) for id in ids)
        return [row for row in rows if row is not None and row.leader_id == leader_id]

    def _delete(self, row: Row, leader_id: str | None) -> None:
        self._touch(row, leader_id)
        del self.rows[row.record.id]
        del self._order[bisect_left(self._order, row.record.id)]

    def _touch(self, row: Row, leader_id: str | None) -> None:
        """Note when a leader changes a row that is not its own."""
        if leader_id is not None and row.leader_id != leader_id:
            self.trespasses.append((leader_id, row.record.id))
