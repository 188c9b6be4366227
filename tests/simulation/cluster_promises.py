"""
The promises of several clusters: who may send which record, and when.

A cluster is judged as a single outbox with marks in memory is, row by row of
each origin; whoever knows all of them judges the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Final

from django_outbox.events import (
    Event,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
)
from django_outbox.message.record import OrderingKey, Record

from .promises import Promises
from .remembered import RememberedPromises
from .table import Row

if TYPE_CHECKING:
    from .broker import Request
    from .cluster import Cluster
    from .clusters_world import ClustersWorld
    from .process import Process

PROMPT: Final = 0.8
"""Seconds in which a leader in peace sends an own row that nothing is before."""

TAKEN: Final = 2.2
"""Seconds in which it takes over some row whose time has come: two sweeps."""

ROUNDING: Final = 1e-6


class ClusterPromises(RememberedPromises):
    """The judge of one cluster."""

    _world: Cluster

    def __init__(self, world: Cluster) -> None:
        super().__init__(world)
        self._reads: dict[Process, dict[int, float]] = {}
        """When a process last read a row."""
        self._produced: set[int] = set()
        self._led_since: float | None = None
        self._is_graceful = world.plan.profile == "graceful"

    # At the moment.

    def on_ids(self, rows: Sequence[Row]) -> None:
        """P-IDS: no two clusters draw the same id."""
        for id in (row.record.id for row in rows):
            if id in self._world.table.committed:
                self._break("P-IDS", f"{id} was drawn twice")

    def on_commit(self, rows: Sequence[Row]) -> None:
        """P-OWN: a row that is the only own one is sent soon, whatever else waits."""
        cluster = self._world
        ids = {row.record.id for row in rows}
        own = {
            id
            for id, row in cluster.table.rows.items()
            if row.record.cluster_id == cluster.number
        }
        if self._is_prompt and own == ids and self._is_in_peace(0.3):
            cluster.time.after(PROMPT, lambda: self._ask_for(ids))

    def on_read(
        self, process: Process, records: Iterable[Record], asked_at: float
    ) -> None:
        reads = self._reads.setdefault(process, {})
        reads.update((record.id, asked_at) for record in records)

    def on_produce(self, process: Process, record: Record) -> None:
        """P-BARRIER within the row's origin, and whether it is anybody's turn."""
        table, origin = self._world.table, record.cluster_id
        self._check_barrier(process, record)
        read_at = self._reads[process][record.id]
        if table.deleted_at.get(record.id, read_at) < read_at:
            self._break("P-GONE", f"{process.name} produces {record.id}, long deleted")
        if origin == self._world.number:
            self._produced.add(record.id)
        else:
            self._check_turn(process, record)

    def _check_barrier(self, process: Process, record: Record) -> None:
        table, origin = self._world.table, record.cluster_id
        if self._world.plan.is_pipelined:
            self.check_earlier(process, record)
            return
        first = table.first_of_origin(record.ordering_key, origin)
        if not self._may_go(record, first):
            self._break(
                "P-BARRIER",
                f"{process.name} produces {record.id} of {record.ordering_key} "
                f"while cluster {origin}'s first row there is {first}",
            )

    def _check_turn(self, process: Process, record: Record) -> None:
        """P-RANK, P-FOREIGN, P-SILENT."""
        cluster, plan = self._world, self._world.plan
        rank = (cluster.number - record.cluster_id) % plan.clusters
        age = cluster.table.clock() - float(record.created_at)
        what = f"{process.name} produces {record.id} at the age of {age:.3f} s"
        if not isfinite(age) or age < rank * plan.maximum_delay - ROUNDING:
            self._break("P-RANK", f"{what}, as rank {rank}")
        if plan.is_brief:
            self._break("P-FOREIGN", f"{what}, although no outage was that long")
        if plan.is_one_dead and rank > 1:
            self._break("P-SILENT", f"{what}, although rank 1 is there")
        self._figure("records taken over")

    def on_event(self, process: Process, event: Event) -> None:
        super().on_event(process, event)
        if isinstance(event, LeaderAcquired):
            self._led_since = self._world.time()
        elif isinstance(event, LeaderRevoked | LeaderFenced):
            self._led_since = None
        elif isinstance(event, LeaderRefreshed) and self._is_graceful:
            self._break("P-CALM", "a leader begins anew without a fault")

    def on_death(self) -> None:
        """Expect no leader any more."""
        self._led_since = self._vacant_until = None

    def _is_in_peace(self, seconds: float) -> bool:
        """Whether one process has led for so long, with nothing broken."""
        cluster, now = self._world, self._world.time()
        since = self._led_since
        is_led = since is not None and since <= now - seconds
        process = cluster.leader.process
        return (
            is_led
            and now > self._calm_from
            and process is not None
            and process.term is not None
            and not process.is_stopping
            and not any(cluster.leader.is_cut_from(way) for way in cluster.away_until)
        )

    def _ask_for(self, ids: set[int]) -> None:
        late = (ids - self._produced) & self._world.table.rows.keys()
        if not self._is_in_peace(PROMPT + 0.3):
            return
        self._figure("own rows sent in time")
        if late:
            self._break("P-OWN", f"rows {sorted(late)} still wait after {PROMPT} s")

    def check_takeover(self) -> None:
        """P-TAKEOVER: whose turn it is, and who is there, takes over."""
        cluster, table = self._world, self._world.table
        if not self._is_prompt or not self._is_in_peace(TAKEN):
            return
        since = cluster.time() - TAKEN
        if table.left_at > since:
            return
        waiting: set[tuple[int, OrderingKey]] = set()
        for id, row in sorted(table.rows.items()):
            record, age = row.record, table.clock() - float(row.record.created_at)
            rank = (cluster.number - record.cluster_id) % cluster.plan.clusters
            is_due = age > rank * cluster.plan.maximum_delay + TAKEN
            source = record.cluster_id, record.ordering_key
            if not is_due or source in waiting:
                waiting.add(source)
            elif rank and table.arrived_at[id] < since:
                self._break(
                    "P-TAKEOVER",
                    f"cluster {cluster.number} leaves {id} at the age of {age:.3f} s",
                )

    # At the end.

    def _sent(self) -> Iterable[Request]:
        return (r for r in super()._sent() if r.producer.process.world is self._world)

    def name(self, leader_id: str | None) -> str:
        return self._world.ring.promises.name(leader_id)


class ClustersPromises(Promises):
    """The judge of all."""

    _world: ClustersWorld

    def begin(self) -> None:
        """Look from time to time whether each cluster does its part."""
        for cluster in self._world.clusters:
            cluster.promises.check_takeover()
        self._world.time.after(0.5, self.begin)

    def on_append(self, request: Request) -> None:
        """P-PHANTOM, and P-REWIND for what one cluster sends of one origin."""
        record, sender = request.record, request.producer.process.world
        if record.id not in self._world.table.committed:
            self._break("P-PHANTOM", f"row {record.id} was never committed")
        sent = [
            earlier.record.id
            for earlier in self._world.broker.log.get(record.ordering_key, ())
            if earlier.record.cluster_id == record.cluster_id
            and earlier.producer.process.world is sender
        ]
        is_repeat = self._world.plan.is_pipelined and record.id in sent
        newest = max(sent, default=record.id)
        if record.id < newest and not is_repeat:
            if not request.is_stale:
                self._break(
                    "P-REWIND",
                    f"{record.id} of {record.ordering_key} comes after {newest}",
                )
            self._figure("stale duplicates")

    def _check_order(self) -> None:
        """P-ORDER: within each origin."""
        for ordering_key, requests in self._world.broker.log.items():
            for cluster in self._world.clusters:
                firsts = list(
                    dict.fromkeys(
                        request.record.id
                        for request in requests
                        if request.record.cluster_id == cluster.number
                    )
                )
                if firsts != sorted(firsts):
                    what = f"{ordering_key} of cluster {cluster.number}: {firsts}"
                    self._break("P-ORDER", f"first deliveries of {what}")

    def check_duplicates(self) -> None:
        """P-DUP: within each cluster as for one; what two have sent is counted."""
        senders: dict[int, set[Cluster]] = {}
        for request in self._sent():
            cluster = request.producer.process.world
            senders.setdefault(request.record.id, set()).add(cluster)
        for several in senders.values():
            if len(several) > 1:
                self._figure("records sent by two clusters or more")
        for cluster in self._world.clusters:
            cluster.promises.check_duplicates()
