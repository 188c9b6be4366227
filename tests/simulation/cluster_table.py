"""
The outbox of one of several clusters: its own rows, and those of all others.

Which rows a statement finds is what `postgres/takeover_sql.py` says in SQL, here by
`tests/takeover_rule.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from django_outbox.message.record import KeyToRead, OrderingKey, Record, Sweep
from tests import takeover_rule

from .remembered import RememberedConnection, RememberedTable
from .table import Row

if TYPE_CHECKING:
    from .cluster import Cluster


class ClusterTable(RememberedTable):
    """Finds rows by position where they are its cluster's, by their age elsewhere."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.left_at = 0.0
        """When a row of another cluster was last deleted."""
        self.arrived_at: dict[int, float] = {}
        self.deleted_at: dict[int, float] = {}
        self.committed = cluster.ring.table.committed
        self._cluster = cluster
        # One cluster writes more than another.
        written = cluster.dice.choice((0, 0, 0, 0, 0, 300))
        self._last_id = cluster.number + written * cluster.plan.clusters

    def clock(self) -> float:
        """The time by this database, in seconds."""
        return self._cluster.time() + self._cluster.offset

    def age(self, record: Record) -> float:
        """Seconds since the origin's clock wrote its time into the row."""
        return self.clock() - float(record.created_at)

    # What transactions of the application do.

    def draw_id(self) -> int:
        self._last_id += self._cluster.plan.clusters
        return self._last_id

    def commit(self, rows: Iterable[Row], name: str = "") -> bool:
        rows = list(rows)
        self._cluster.promises.on_ids(rows)
        super().commit(rows, name)
        self._cluster.ring.replication.publish(self._cluster, rows, is_insert=True)
        self._cluster.promises.on_commit(rows)
        return True

    # What other tables send.

    def insert_of_another(self, row: Row) -> None:
        super().commit([row])
        self.arrived_at[row.record.id] = self._cluster.time()

    def delete_of_another(self, id: int) -> None:
        if id in self.rows:
            super()._delete(self.rows[id], "")
            self._note(id)

    # What leaders do.

    def is_mine(self, record: Record) -> bool:
        return record.cluster_id == self._cluster.number

    def is_left(self, record: Record, position: int) -> bool:
        if self.is_mine(record):
            return record.id <= position
        return self.may_take(record)

    def may_take(self, record: Record) -> bool:
        """Whether it is this cluster's turn."""
        plan = self._cluster.plan
        rows = (self.rows[id].record for id in self._order if id <= record.id)
        eligible = takeover_rule.eligible(
            (
                takeover_rule.Aged(
                    row.id, row.cluster_id, row.ordering_key, self.age(row)
                )
                for row in rows
                if row.ordering_key == record.ordering_key
                and row.cluster_id == record.cluster_id
            ),
            this_cluster=self._cluster.number,
            count=plan.clusters,
            maximum_delay=plan.maximum_delay,
        )
        return bool(eligible) and eligible[-1].id == record.id

    def first_of_origin(self, ordering_key: OrderingKey, origin: int) -> int | None:
        """Return the lowest id of a key, of those that one cluster has written."""
        ids = (
            id
            for id in self._order
            if (record := self.rows[id].record).ordering_key == ordering_key
            and record.cluster_id == origin
        )
        return next(ids, None)

    def _delete(self, row: Row, leader_id: str) -> None:
        super()._delete(row, leader_id)
        self._note(row.record.id)
        self._cluster.ring.replication.publish(self._cluster, [row], is_insert=False)

    def _note(self, id: int) -> None:
        self.deleted_at[id] = self._cluster.time()
        if self.committed[id].record.cluster_id != self._cluster.number:
            self.left_at = self._cluster.time()


class ClusterConnection(RememberedConnection):
    """One thread's view of the table; it tells the judge what was read when."""

    @property
    def id_increment(self) -> int:  # type: ignore[override]
        return self._world.plan.clusters

    def page(
        self,
        position: int,
        gaps: Sequence[tuple[int, int]],
        keys_to_read: Sequence[KeyToRead] = (),
        *,
        limit: int,
        end: int | None = None,
    ) -> list[Record]:
        asked_at = self._world.time()
        records = super().page(position, gaps, keys_to_read, limit=limit)
        self._world.promises.on_read(self._process, records, asked_at)
        return records

    def sweep(self, position: int, sweep: Sweep, *, limit: int) -> list[Record]:
        asked_at = self._world.time()
        records = super().sweep(position, sweep, limit=limit)
        self._world.promises.on_read(self._process, records, asked_at)
        return records
