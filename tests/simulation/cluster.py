"""
One of several clusters: a world of its own, but for Kafka and the time.

It has its table, its clock, its writers, its nodes and its election;
`clusters_world.py` has what all share.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from django_outbox.message.record import OrderingKey
from django_outbox.relay.settings import RelaySettings

from .cluster_promises import ClusterPromises
from .cluster_table import ClusterConnection, ClusterTable
from .clusters_plan import ClustersPlan
from .ledger_writers import LedgerWriters
from .remembered import RememberedProcess, RememberedWorld
from .table import Row

if TYPE_CHECKING:
    from .clusters_world import ClustersWorld
    from .node import Node

TIMELESS = 0.02
"""How many rows have 'infinity' for their time, as plain SQL may write."""

EARLIEST = 2.0
"""Seconds for which a transaction may have been open when it draws its first id."""


class ClusterWriters(LedgerWriters):
    """Their rows name the cluster, and the time by its database."""

    def _insert(self, ordering_keys: list[OrderingKey]) -> Row:
        cluster = self._world
        time = cluster.table.clock()
        if cluster.weather.by_hand and self._dice.random() < TIMELESS:
            cluster.count("row without a time")
            time = inf
        elif self._dice.random() < cluster.weather.begun_early:
            cluster.count("row of an old transaction")
            time -= self._dice.uniform(0.0, EARLIEST)
        row = super()._insert(ordering_keys)
        row.record = row.record._replace(
            cluster_id=cluster.number, created_at=str(time)
        )
        return row

    def _number_behind(self) -> int:
        plan, number = self._world.plan, self._world.number
        return number - self._serial * int(plan.clusters)


class ClusterProcess(RememberedProcess):
    """One life of a harvester process, which knows its cluster."""

    def connect(self) -> ClusterConnection:
        return ClusterConnection(self)

    def _settings(self) -> RelaySettings:
        cluster = self.world
        return replace(
            super()._settings(),
            this_cluster=cluster.number,
            clusters=cluster.plan.clusters,
            quiet=cluster.plan.maximum_delay,
        )


class Cluster(RememberedWorld):
    """Its plan is that of all."""

    plan: ClustersPlan
    table: ClusterTable
    promises: ClusterPromises

    def __init__(self, ring: ClustersWorld, number: int) -> None:
        self.ring = ring
        self.number = number
        self.offset = ring.plan.offsets[number]
        super().__init__(ring.plan, is_tracing=ring.is_tracing, within=ring)

    def _furnish(self) -> None:
        self.table = ClusterTable(self)
        self.promises = ClusterPromises(self)
        self.broker = self.ring.broker
        self.writers = ClusterWriters(self)

    def make_process(self, node: Node) -> ClusterProcess:
        return ClusterProcess(node)

    def name_of(self, node: int) -> str:
        return f"{self.number}/node{node}"
