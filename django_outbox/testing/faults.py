"""
Wrappers that add faults to a real adapter, to test recovery on the real one.

Each wrapper implements the port that it wraps, and draws its faults from a seed,
so a test is repeatable. `dataclasses.replace(adapters, producer=...)` puts one
into a harvester.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ..exceptions import DatabaseUnavailable, DeliveryFailed
from ..message.record import Failure, KeyToRead, Record, Sweep
from ..relay.ports import Outbox, Producer, Report

T = TypeVar("T")


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

    def produce(
        self, record: Record, leader_id: str, settled: Report, *, alone: bool = False
    ) -> None:
        if self._random.random() < self._produce_rate:
            self.faults += 1
            raise DeliveryFailed("A fault of the test.", code="FAULT_PRODUCE")
        settle = partial(self._settle, settled)
        self._real.produce(record, leader_id, settle, alone=alone)

    def poll(self, timeout: float) -> int:
        return self._real.poll(timeout)

    def purge(self) -> None:
        self._real.purge()

    def close(self) -> None:
        self._real.close()

    def _settle(
        self, settled: Report, record: Record, error: DeliveryFailed | None
    ) -> None:
        if error is None and self._random.random() < self._delivery_rate:
            self.faults += 1
            error = DeliveryFailed("A fault of the test.", code="FAULT_DELIVERY")
        settled(record, error)


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

    def purge(self, leader_id: str, records: Sequence[Record]) -> int:
        return self._call(lambda: self._real.purge(leader_id, records))

    def fail(self, leader_id: str, failures: Sequence[Failure]) -> int:
        return self._call(lambda: self._real.fail(leader_id, failures))

    def park(self, leader_id: str, failures: Sequence[Failure]) -> int:
        return self._call(lambda: self._real.park(leader_id, failures))

    def ping(self) -> None:
        self._call(self._real.ping)

    def _call(self, act: Callable[[], T]) -> T:
        if self._random.random() < self._before_rate:
            self.faults += 1
            raise DatabaseUnavailable("A fault of the test: nothing was done.")
        outcome = act()
        if self._random.random() < self._after_rate:
            self.faults += 1
            raise DatabaseUnavailable("A fault of the test: all was done.")
        return outcome
