"""
One of several shards: a world of its own, but for database, Kafka and the time.

It has its nodes and its election: where a real process may lead several shards,
each of them has processes of its own here. `shards_world.py` has what all share.
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
from tests.fakes.unmarked import InMemoryUnmarked

from .failovers import FailoverConnection, FailoverPromises
from .ledger_process import LedgerProcess
from .process import Process
from .timing import SESSION_TIMEOUT
from .transactions import SimulatedTransactions
from .world import World

if TYPE_CHECKING:
    from .node import Node
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
    """One life of a harvester process that marks in memory."""

    def connect(self) -> ShardConnection:
        return ShardConnection(self)

    def _settings(self) -> RelaySettings:
        return replace(super()._settings(), shards=self.world.shards)

    def _can_join(self) -> bool:
        # The leader group has members with another number, or had them last.
        return not self.world.is_over and super()._can_join()


class ShardLedgerProcess(ShardProcess, LedgerProcess):
    """One life of a harvester process with exactly-once delivery."""

    def _make_transactions(self) -> ShardTransactions:
        return ShardTransactions(self)


class ShardPromises(FailoverPromises):
    """The judge of one shard; what the log shows is for the judge of all."""

    _world: Shard

    def on_step(self) -> None:
        """P-LEAD: of two numbers of shards only one has leaders."""
        super().on_step()
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
        self.is_over = False
        """The keys are divided among another number of shards."""
        super().__init__(ring.plan, is_tracing=ring.is_tracing, within=ring)
        self.row_trouble = ring.row_trouble
        self.away_until, self.paused = ring.away_until, ring.paused
        self.weather, self.is_cured = ring.weather, ring.is_cured
        self.read_only_since = ring.read_only_since

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

    def begin(self) -> None:
        for node in self.nodes:
            self.time.after(self.dice.uniform(0.0, 0.2), node.start)

    def retire(self) -> None:
        """End all processes, some of them badly; none follows."""
        self.is_over, self.dead_until = True, inf
        self.promises.retire()
        for node in self.nodes:
            luck = self.dice.random()
            if luck < 0.2:
                node.crash(0.0)
            elif node.process is not None:
                if luck < 0.4:
                    node.process.freeze(self.dice.uniform(0.2, 4.0) * SESSION_TIMEOUT)
                node.stop(0.0)

    @property
    def has_members(self) -> bool:
        """Whether the leader group waits for one of its processes."""
        return not self.group.coordinator.is_empty
