"""
One history of several clusters that replicate to each other.

Each relays its own records at once and another's when they are so old that
their origin must have failed; all of them write to one Kafka.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import timing
from .broker import Broker
from .cluster import Cluster
from .cluster_faults import inject_into
from .cluster_promises import ClustersPromises
from .clusters_plan import ClustersPlan, make_clusters_plan
from .faults import mend
from .plan import Fault
from .replication import Replication
from .table import Row
from .world import World

if TYPE_CHECKING:
    from .node import Node


class Tables:
    """The tables of all clusters, as one who knows everything sees them."""

    def __init__(self, world: ClustersWorld) -> None:
        self.committed: dict[int, Row] = {}
        """Every row that was ever committed, as its origin's table has it."""
        self.trespasses: list[tuple[str, int]] = []
        """No row is any leader's own."""
        self._world = world

    @property
    def rows(self) -> list[tuple[int, int]]:
        """Each row of each cluster: the cluster, and its id."""
        return [(c.number, id) for c in self._world.clusters for id in c.table.rows]

    @property
    def parked(self) -> Mapping[int, Row]:
        return ChainMap(*(cluster.table.parked for cluster in self._world.clusters))


class ClustersWorld(World):
    """What the clusters share: Kafka, the time, and who judges them."""

    plan: ClustersPlan

    def __init__(self, plan: ClustersPlan, *, is_tracing: bool) -> None:
        super().__init__(plan, is_tracing=is_tracing)
        self.nodes: list[Node] = []
        self.clusters = [Cluster(self, number) for number in range(plan.clusters)]
        self.replication = Replication(self)
        # Whoever is still dead comes back, and the last rank has its turn.
        turns = (plan.clusters + 1) * plan.maximum_delay + plan.skew
        longest = max((fault.duration for fault in plan.faults), default=0.0)
        self.patience = timing.RECOVERY + turns + longest

    @classmethod
    def planned(cls, seed: int, delivery: str) -> ClustersPlan:
        return make_clusters_plan(seed, delivery)

    def _furnish(self) -> None:
        self.table: Tables = Tables(self)
        self.promises: ClustersPromises = ClustersPromises(self)
        self.broker = Broker(self)

    @property
    def is_busy(self) -> bool:
        return (
            any(cluster.is_busy for cluster in self.clusters)
            or self.replication.is_behind
        )

    def begin(self) -> None:
        for cluster in self.clusters:
            cluster.begin()
        self.promises.begin()

    def inject(self, fault: Fault) -> None:
        inject_into(self, fault)

    def mend(self) -> None:
        mend(self)
        for cluster in self.clusters:
            mend(cluster)
        self.replication.mend()
