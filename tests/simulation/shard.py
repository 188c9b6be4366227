"""
One of several shards: a world of its own, but for database, Kafka and the time.

Its nodes and processes are parts of those that all shards have: the processes are
members of one group, and each may lead several shards. `shards_world.py` has what all
share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from django_outbox.exceptions import KafkaUnavailable, ProducerBroken
from django_outbox.message.record import Record
from django_outbox.relay.ledger.ports import Ledger
from django_outbox.relay.ports import Others
from django_outbox.relay.settings import RelaySettings
from tests.fakes.membership import FakeGroup
from tests.fakes.unmarked import InMemoryUnmarked

from .failovers import FailoverConnection, FailoverPromises
from .ledger_process import LedgerProcess
from .process import Process
from .promises import Promises
from .transactions import SimulatedTransactions
from .world import World

if TYPE_CHECKING:
    from .node import Node
    from .plan import Fault
    from .shards_world import ShardsWorld


class ShardConnection(FailoverConnection):
    """One thread's view of the rows of its shard."""

    _world: Shard

    @property
    def shards(self) -> int:  # type: ignore[override]
        return self._world.shards

    def others(self, position: int, *, limit: int) -> Others:
        return self._execute("others", lambda: self._view.others(position, limit=limit))

    @property
    def _view(self) -> InMemoryUnmarked:
        return self._world.table.of_shard(self._world.number, self._world.shards)


class ShardTransactions(SimulatedTransactions):
    """The transactional producer of one shard in one process."""

    _world: Shard

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._id = self.id_of(self._world.number, self._world.shards)

    def open(self) -> Ledger | None:
        last = super().open()
        if last is not None and last.shards == self._world.shards:
            return last
        try:
            self._call("announce", self._announce)
        except ProducerBroken as error:
            raise KafkaUnavailable(str(error)) from error
        return None

    def others(self) -> Sequence[Ledger]:
        found: list[Ledger | None] = []
        try:
            for number in range(self._world.ring.partitions):
                last, announced = self._read_all(number)
                if others := announced - {self._world.shards}:
                    for shards in sorted(others):
                        self._fence(number, shards)
                    last = self._read(number)
                found.append(last)
        except ProducerBroken as error:
            raise KafkaUnavailable(str(error)) from error
        return [last for last in found if last is not None]

    def _fence(self, number: int, shards: int) -> None:
        transactor, former = self._world.transactor, self.id_of(number, shards)
        self._call("init", lambda: transactor.initialise(former))

    def _announce(self) -> bool:
        """Be the broker: take the number of shards behind the last ledger."""
        transactor, world = self._world.transactor, self._world
        if self._epoch is None or not transactor.is_current(self._id, self._epoch):
            raise ProducerBroken("fenced", code="_FENCED")
        world.announced[world.number].add(world.shards)
        return True

    def _read_all(self, number: int) -> tuple[Ledger | None, set[int]]:
        """Return the last ledger, and all numbers that somebody led with since."""
        world = self._world

        def read() -> tuple[Ledger | None, set[int]]:
            last = world.ledgers.get(number)
            announced = {*world.announced[number]}
            return last, announced | ({last.shards} if last else set())

        return self._call("read the ledger", read)

    def _read(self, shard: int | None = None) -> Ledger | None:
        return super()._read(self._world.number if shard is None else shard)

    def _write(self, ledger: Ledger) -> None:
        world = self._world
        world.ledgers[world.number] = replace(ledger, shards=world.shards)
        world.announced[world.number].clear()


class ShardProcess(Process):
    """The part for one shard of a harvester process that marks in memory."""

    @property
    def shard(self) -> int:
        return self.world.number

    def _assemble_election(self) -> None:
        """Be in the election together with the parts for other shards."""
        if (first := self.node.machine[0].process) is None:
            super()._assemble_election()
            return
        self.parts = first.parts
        self.parts.append(self)
        self.membership = first.membership
        self.elector, self.elect = first.elector, first.elect

    def connect(self) -> ShardConnection:
        return ShardConnection(self)

    def _settings(self) -> RelaySettings:
        return replace(super()._settings(), shards=self.world.shards)

    def _can_join(self) -> bool:
        # The leader group has members with another number, or had them last.
        return not self.world.is_over and super()._can_join()


class ShardLedgerProcess(ShardProcess, LedgerProcess):
    """The same of a harvester process with exactly-once delivery."""

    def _make_transactions(self) -> ShardTransactions:
        return ShardTransactions(self)


class ShardPromises(FailoverPromises):
    """The judge of one shard; what the log shows is for the judge of all."""

    _world: Shard

    def on_fault(self, fault: Fault, node: Node) -> None:
        """It befalls the part for each shard."""
        for part in node.machine:
            Promises.on_fault(part.world.promises, fault, part)

    def on_step(self, process: Process) -> None:
        """P-LEAD: of two numbers of shards only one has leaders."""
        super().on_step(process)
        trusted = self._world.ring.trusted()
        if len({shards for _, shards in trusted}) > 1:
            names = " and ".join(name for name, _ in trusted)
            self._break("P-LEAD", f"{names} are trusted at once")

    def on_shown(self, record: Record) -> None:
        self._world.ring.promises.on_shown(record)

    def retire(self) -> None:
        """Expect no leader any more."""
        self._vacant_until = None


class Shard(World):
    """Its plan is that of all."""

    promises: ShardPromises

    def __init__(self, ring: ShardsWorld, number: int, shards: int) -> None:
        self.ring = ring
        self.number, self.shards = number, shards
        self._first = next(iter(ring.shards), self)
        """The shard whose group and machines are those of all."""
        self.is_over = False
        """The keys are divided among another number of shards."""
        super().__init__(ring.plan, is_tracing=ring.is_tracing, within=ring)
        self.row_trouble = ring.row_trouble
        self.away_until, self.paused = ring.away_until, ring.paused
        self.weather, self.is_cured = ring.weather, ring.is_cured
        self.read_only_since = ring.read_only_since
        for node, first in zip(self.nodes, self._first.nodes, strict=True):
            if node is not first:
                node.machine = first.machine
                node.machine.append(node)

    def make_group(self, *, shards: int = 1) -> FakeGroup:
        if self._first is self:
            return super().make_group(shards=self.shards)
        return self._first.group

    def _furnish(self) -> None:
        ring = self.ring
        self.table, self.broker, self.writers = ring.table, ring.broker, ring.writers
        self.transactor, self.ledgers = ring.transactor, ring.ledgers
        self.announced = ring.announced
        self.promises = ShardPromises(self)
        self.in_transit = 0

    def make_process(self, node: Node) -> Process:
        if self.plan.delivery == "shards":
            return ShardProcess(node)
        return ShardLedgerProcess(node)

    def name_of(self, node: int) -> str:
        return f"{self.number}/{self.shards}-{node}"

    def retire(self) -> None:
        """Start no process any more."""
        self.is_over, self.dead_until = True, inf
        self.promises.retire()
