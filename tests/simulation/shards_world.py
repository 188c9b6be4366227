"""
One history of several shards over one table, whose number changes meanwhile.

A process may lead several of them. Processes with a new number wait until the leader
group has none with another one, as `kafka/membership.py` has them wait. Some of the old
ones are killed, or stand still and go on when others lead.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

from django_outbox.relay.ledger.ports import Ledger
from tests.fakes.transactor import Transactor

from .failovers import FailoverBroker, FailoverPromises
from .faults import inject, mend
from .ledger_table import LedgerTable
from .ledger_writers import LedgerWriters
from .plan import Fault
from .shard import Shard
from .shards_plan import ShardsPlan, make_shards_plan
from .timing import SESSION_TIMEOUT
from .world import World

if TYPE_CHECKING:
    from .node import Node

LOOK: Final = 0.02
"""Seconds between two looks of those who wait for others to leave the group."""


class ShardsWorld(World):
    """What the shards share: database, Kafka, the time, and who judges them."""

    plan: ShardsPlan

    def __init__(self, plan: ShardsPlan, *, is_tracing: bool) -> None:
        super().__init__(plan, is_tracing=is_tracing)
        self.nodes: list[Node] = []
        self.shards: list[Shard] = []
        """Of this number."""
        self.former: list[Shard] = []
        """Of other numbers."""
        self.partitions = 1
        """Of the ledger topic: as many shards as there ever were."""
        self._wanted = 0

    @classmethod
    def planned(cls, seed: int, delivery: str) -> ShardsPlan:
        return make_shards_plan(seed, delivery)

    def _furnish(self) -> None:
        self.table: LedgerTable = LedgerTable(self)
        self.promises: FailoverPromises = FailoverPromises(self)
        self.broker = FailoverBroker(self)
        self.writers: LedgerWriters = LedgerWriters(self)
        self.transactor = Transactor()
        self.ledgers: dict[int, Ledger] = {}
        self.announced: defaultdict[int, set[int]] = defaultdict(set)
        """Numbers of shards that leaders have announced since the last ledger."""

    @property
    def is_busy(self) -> bool:
        under_way = any(shard.in_transit for shard in (*self.shards, *self.former))
        return bool(self._wanted) or under_way or super().is_busy

    def begin(self) -> None:
        self.writers.start()
        for at, shards in self.plan.divisions:
            self.time.after(at, partial(self.divide, shards))

    def divide(self, shards: int) -> None:
        """Divide the keys among so many, as soon as nobody has another number."""
        self.trace("FAULT", f"{shards} shards")
        if self.shards:
            self.count("another number of shards")
        for shard in self.shards:
            shard.retire()
        for node in self.shards[0].nodes if self.shards else ():
            self._retire(node)
        self.former += self.shards
        self.shards = []
        is_waiting, self._wanted = bool(self._wanted), shards
        if not is_waiting:
            self._begin_shards()

    def _begin_shards(self) -> None:
        if not all(shard.group.coordinator.is_empty for shard in self.former):
            self.time.after(LOOK, self._begin_shards)
            return
        shards, self._wanted = self._wanted, 0
        self.partitions = max(self.partitions, shards)
        for number in range(shards):
            self.shards.append(Shard(self, number, shards))
        for node in self.shards[0].nodes:
            self.time.after(self.dice.uniform(0.0, 0.2), node.start)

    def _retire(self, node: Node) -> None:
        """End the process of a machine, perhaps badly; none follows."""
        luck = self.dice.random()
        if luck < 0.2:
            node.crash(0.0)
        elif node.process is not None:
            if luck < 0.4:
                node.process.freeze(self.dice.uniform(0.2, 4.0) * SESSION_TIMEOUT)
            node.stop(0.0)

    def trusted(self) -> list[tuple[str, int]]:
        """Name the processes that may act, each with its number of shards."""
        return [
            (process.name, shard.shards)
            for shard in (*self.shards, *self.former)
            for process in (node.process for node in shard.nodes)
            if process is not None
            and process.term is not None
            and self.time() >= process.doubtful_until
        ]

    def inject(self, fault: Fault) -> None:
        if not self.shards:
            return
        inject(shard := self.dice.choice(self.shards), fault)
        # It is one database.
        self.read_only_since = shard.read_only_since
        for other in self.shards:
            other.read_only_since = self.read_only_since

    def mend(self) -> None:
        mend(self)
        for shard in (*self.shards, *self.former):
            mend(shard)
            shard.away_until = self.away_until
