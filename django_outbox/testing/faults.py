"""
Wrappers that add faults to a real adapter, to test recovery on the real one.

Each wrapper implements the port that it wraps, and draws its faults from a seed,
so a test is repeatable. `dataclasses.replace(adapters, producer=...)` puts one
into a harvester.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ..exceptions import DatabaseUnavailable, DeliveryFailed
from ..message.pauses import Pauses
from ..message.record import Failure, KeyToRead, Record, Sweep
from ..relay.batch import Accepted, Batch, Fault
from ..relay.ports import Outbox, Outcome, Producer

T = TypeVar("T")

_FAULT: Final = "A fault of the test."


class FaultyProducer:
    """
    A producer that refuses some records and reports some deliveries as failed.

    Args:
        real: the producer that sends.
        produce_rate: share of produce calls that raise; nothing is sent.
        delivery_rate: share of deliveries reported as failed although the
            message *is* in Kafka.
        seed: the same seed gives the same faults.
    """

    def __init__(
        self,
        real: Producer,
        *,
        produce_rate: float = 0.0,
        delivery_rate: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.faults = 0
        """How many faults there were."""
        self._real = real
        self._produce_rate = produce_rate
        self._delivery_rate = delivery_rate
        self._random = random.Random(seed)  # noqa: S311  # faults, no secrets

    @property
    def delivered(self) -> int:
        return self._real.delivered

    @property
    def proven_topics(self) -> set[str]:
        return self._real.proven_topics

    def produce(self, batch: Batch, leader_id: str) -> Accepted:
        records = batch.records
        for count in range(len(records)):
            if self._random.random() < self._produce_rate:
                self.faults += 1
                return self._produce_some(batch, leader_id, count)
        return self._real.produce(batch, leader_id)

    def _produce_some(self, batch: Batch, leader_id: str, count: int) -> Accepted:
        """Queue the first records of a batch, and refuse the next one."""
        records, error = batch.records, DeliveryFailed(_FAULT, code="FAULT_PRODUCE")
        batch.records = records[:count]
        accepted = self._real.produce(batch, leader_id) if count else Accepted(0)
        batch.records = records
        return accepted if accepted.queued < count else Accepted(count, error)

    def poll(self, timeout: float) -> Sequence[Outcome]:
        return [self._spoilt(*outcome) for outcome in self._real.poll(timeout)]

    def purge(self) -> Sequence[Outcome]:
        return self._real.purge()

    def close(self) -> None:
        self._real.close()

    def _spoilt(self, batch: Batch, faults: Sequence[Fault]) -> Outcome:
        """Report some deliveries as failed."""
        failed = {fault.record.id for fault in faults}
        spoilt = [
            Fault(record, DeliveryFailed(_FAULT, code="FAULT_DELIVERY"))
            for record in batch.records
            if record.id not in failed and self._random.random() < self._delivery_rate
        ]
        self.faults += len(spoilt)
        return batch, [*faults, *spoilt]


class FaultyOutbox:
    """
    A table whose calls sometimes have an unknown outcome.

    Args:
        real: the table.
        before_rate: share of calls that raise before anything is done.
        after_rate: share of calls that raise after everything is done.
        seed: the same seed gives the same faults.
    """

    def __init__(
        self,
        real: Outbox,
        *,
        before_rate: float = 0.0,
        after_rate: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.faults = 0
        """How many faults there were."""
        self._real = real
        self._before_rate = before_rate
        self._after_rate = after_rate
        self._random = random.Random(seed)  # noqa: S311  # faults, no secrets

    def mark(
        self, leader_id: str, *, limit: int, sweep: Sweep | None = None
    ) -> list[Record]:
        return self._call(lambda: self._real.mark(leader_id, limit=limit, sweep=sweep))

    def reset(self, leader_id: str, keys: Sequence[KeyToRead]) -> None:
        self._call(lambda: self._real.reset(leader_id, keys))

    def purge(self, leader_id: str | None, records: Sequence[Record]) -> int:
        return self._call(lambda: self._real.purge(leader_id, records))

    def fail(self, leader_id: str, failures: Sequence[Failure]) -> int:
        return self._call(lambda: self._real.fail(leader_id, failures))

    def park(self, leader_id: str, failures: Sequence[Failure]) -> int:
        return self._call(lambda: self._real.park(leader_id, failures))

    def kept(self, leader_id: str | None, records: Sequence[Record]) -> set[int]:
        return self._call(lambda: self._real.kept(leader_id, records))

    def locked(self, records: Sequence[Record]) -> set[int]:
        return self._call(lambda: self._real.locked(records))

    def begin(self) -> None:
        self._real.begin()

    def ping(self) -> None:
        self._call(self._real.ping)

    def pauses(self) -> Pauses:
        return self._call(self._real.pauses)

    def timeline(self) -> str:
        return self._call(self._real.timeline)

    def _call(self, act: Callable[[], T]) -> T:
        if self._random.random() < self._before_rate:
            self.faults += 1
            raise DatabaseUnavailable("A fault of the test: nothing was done.")
        outcome = act()
        if self._random.random() < self._after_rate:
            self.faults += 1
            raise DatabaseUnavailable("A fault of the test: all was done.")
        return outcome
