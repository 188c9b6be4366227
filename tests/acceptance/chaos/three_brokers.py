"""A Kafka of three brokers, of which one may die: all has three replicas."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django_outbox.devstack.embedded_kafka import EmbeddedKafka
from django_outbox.devstack.service import Service

REPLICATED: Final = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}

VOTERS: Final = "controller.quorum.voters"


class Controller(EmbeddedKafka):
    """
    A controller and no broker.

    It does not die with a broker: the choice of another one would take longer than all
    that follows.
    """

    def __init__(self) -> None:
        super().__init__(progress=print)
        _, controller = self.settings["listeners"].split(",")
        self.settings |= {"process.roles": "controller", "listeners": controller}
        del self.settings["advertised.listeners"]
        host, _, port = self.settings[VOTERS].partition("@")[2].partition(":")
        self._listener = host, int(port)

    def answers(self) -> bool:
        try:
            socket.create_connection(self._listener, timeout=1.0).close()
        except OSError:
            return False
        return True


class ThreeBrokers(Service):
    """Three brokers and their controller, each a process."""

    def __init__(self) -> None:
        controller = Controller()
        self._brokers = [EmbeddedKafka(progress=print) for _ in range(3)]
        self._all = [controller, *self._brokers]
        super().__init__(
            ",".join(broker.address for broker in self._brokers), source="embedded"
        )
        voter = controller.settings[VOTERS].partition("@")[2]
        for number, each in enumerate(self._all):
            each.cluster_id = controller.cluster_id
            # The controller makes topics, and is asked for the number of replicas.
            each.settings |= {
                **REPLICATED,
                "node.id": str(number),
                VOTERS: f"0@{voter}",
            }
        for broker in self._brokers:
            listener, _ = broker.settings["listeners"].split(",")
            broker.settings |= {"process.roles": "broker", "listeners": listener}

    def start(self) -> None:
        """Start those that do not run; brokers wait for their controller."""
        self._each(lambda server: server.is_running() or server.start())

    def stop(self) -> None:
        self._each(EmbeddedKafka.stop)

    def kill(self) -> None:
        self._each(EmbeddedKafka.kill)

    def crash(self, number: int) -> None:
        """Kill the broker with this id."""
        self._brokers[number - 1].kill()

    def close(self) -> None:
        self._each(EmbeddedKafka.close)

    def _each(self, act: Callable[[EmbeddedKafka], object]) -> None:
        with ThreadPoolExecutor(len(self._all)) as pool:
            list(pool.map(act, self._all))
