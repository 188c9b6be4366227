"""A Kafka of three brokers, of which one may die: all has three replicas."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django_outbox.devstack.embedded_kafka import EmbeddedKafka
from django_outbox.devstack.service import Service

REPLICATED: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class ThreeBrokers(Service):
    """Three processes, each a broker and a controller."""

    def __init__(self) -> None:
        self._brokers = [EmbeddedKafka(progress=print) for _ in range(3)]
        super().__init__(
            ",".join(broker.address for broker in self._brokers), source="embedded"
        )
        name = "controller.quorum.voters"
        controllers = [
            broker.settings[name].partition("@")[2] for broker in self._brokers
        ]
        voters = ",".join(f"{n}@{at}" for n, at in enumerate(controllers, start=1))
        for number, broker in enumerate(self._brokers, start=1):
            broker.cluster_id = self._brokers[0].cluster_id
            broker.settings |= {"node.id": str(number), name: voters, **REPLICATED}

    def start(self) -> None:
        """Start those that do not run; the first two need each other."""
        self._each(lambda broker: broker.is_running() or broker.start())

    def stop(self) -> None:
        self._each(EmbeddedKafka.stop)

    def kill(self) -> None:
        self._each(EmbeddedKafka.kill)

    def crash(self, number: int) -> None:
        """Kill one broker."""
        self._brokers[number - 1].kill()

    def close(self) -> None:
        self._each(EmbeddedKafka.close)

    def _each(self, act: Callable[[EmbeddedKafka], object]) -> None:
        with ThreadPoolExecutor(len(self._brokers)) as pool:
            list(pool.map(act, self._brokers))
