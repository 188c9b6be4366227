"""
Debezium's PostgreSQL connector with its outbox router, under Kafka Connect.

One standalone worker serves the whole run, so that its Java is as warm as that
of a worker at work. Each turn has a connector, and a replication slot, of its
own: a slot that was left open would decode the turns of all other sides.

A backlog is drained as it is after an outage: the connector is stopped, the
rows are written, the connector is resumed. Its rate counts from its first
message in the topic to the last, so that the restart of its task is not in it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import psutil

from django_outbox.devstack.service import free_port, wait_until
from django_outbox.devstack.supervised_process import SupervisedProcess
from django_outbox.jars import read_list, resolve
from django_outbox.jars.coordinates import parse
from django_outbox.jars.find_java import find_java

from ..waiting import eventually
from . import arrivals
from .servers import connect
from .sides import Drained
from .workload import Workload, empty, new_topic

JARS: Final = Path(__file__).with_name("debezium.txt")

_WORKER: Final = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": "10000",
    "plugin.discovery": "only_scan",
}

_ROUTER: Final = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": "1",
    "plugin.name": "pgoutput",
    "snapshot.mode": "no_data",
    "publication.autocreate.mode": "filtered",
    "table.include.list": "public.outbox",
    "tombstones.on.delete": "false",
    "transforms": "outbox",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    "transforms.outbox.table.field.event.id": "id",
    "transforms.outbox.table.field.event.key": "kafka_key",
    "transforms.outbox.table.field.event.payload": "kafka_value",
    "transforms.outbox.route.by.field": "kafka_topic",
    "transforms.outbox.route.topic.replacement": "${routedByValue}",
}

TUNED: Final = {
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "poll.interval.ms": "10",
    "producer.override.batch.size": "262144",
    "producer.override.linger.ms": "5",
}
LOW_LATENCY: Final = TUNED | {
    "poll.interval.ms": "1",
    "producer.override.linger.ms": "0",
}


class Worker:
    """A standalone worker of Kafka Connect."""

    def __init__(self) -> None:
        lists = [read_list("kafka"), parse(JARS.read_text("utf-8"))]
        jars = [jar for each in lists for jar in resolve(each, progress=print)]
        self._process = SupervisedProcess("connect", ending=signal.SIGKILL)
        self._url = f"http://127.0.0.1:{free_port()}"
        folder = self._process.folder
        settings = _WORKER | {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "listeners": self._url,
            "offset.storage.file.filename": str(folder / "offsets"),
        }
        file = folder / "worker.properties"
        file.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        self._command = [
            *(find_java(), "-Xmx1g", "-cp", os.pathsep.join(map(str, jars))),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            *("org.apache.kafka.connect.cli.ConnectStandalone", str(file)),
        ]
        self.start()

    def start(self) -> None:
        """Start it; of before a crash it knows offsets, and no connector."""
        self._process.start(self._command)
        wait_until(
            self._answers,
            is_alive=self.is_running,
            explain=self._process.explain,
        )

    def is_running(self) -> bool:
        return self._process.is_running()

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()

    def pause(self) -> None:
        """Let it stand still."""
        self._process.signal(signal.SIGSTOP)

    def unpause(self) -> None:
        """Let it go on."""
        self._process.signal(signal.SIGCONT)

    def create(self, name: str, config: Mapping[str, str]) -> None:
        body = {"name": name, "config": {**config, "name": name}}
        self._ask("POST", "/connectors", body)

    def stop(self, name: str) -> None:
        """Stop a connector's task; return when it has ended."""
        self._ask("PUT", f"/connectors/{name}/stop")
        eventually(lambda: not self._tasks(name), what="a stopped task")

    def resume(self, name: str) -> None:
        self._ask("PUT", f"/connectors/{name}/resume")

    def delete(self, name: str) -> None:
        self._ask("DELETE", f"/connectors/{name}")

    def check(self, name: str) -> None:
        """Raise what a task has failed with."""
        for task in self._tasks(name):
            assert task["state"] != "FAILED", task.get("trace")

    def cpu_seconds(self) -> float:
        pid = self._process._pid
        assert pid is not None, self._process.explain()
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        self._process.close()

    def _answers(self) -> bool:
        try:
            self._ask("GET", "/connectors")
        except (URLError, OSError):
            return False
        return True

    def _tasks(self, name: str) -> list[dict[str, Any]]:
        tasks: list[dict[str, Any]] = self._ask("GET", f"/connectors/{name}/status")[
            "tasks"
        ]
        return tasks

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        request = Request(  # noqa: S310  # http, to our own process
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=60) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text else None


@dataclass(frozen=True, slots=True)
class DebeziumSide:
    """A connector of a worker, under one set of settings."""

    name: str
    worker: Worker
    settings: Mapping[str, str] = field(default_factory=dict)

    def drain(self, workload: Workload, topic: str) -> Drained:
        with self.stopped() as name:
            workload.fill(topic)
            begun = self.worker.cpu_seconds()
            self.worker.resume(name)
            arrivals.wait_for(topic, workload.records)
            cpu = self.worker.cpu_seconds() - begun
        return Drained(seconds=None, cpu_seconds=cpu)

    @contextmanager
    def running(self, topic: str = "") -> Iterator[Worker]:
        with self._connector():
            yield self.worker

    @contextmanager
    def stopped(self) -> Iterator[str]:
        """Have a connector that has relayed a first row, and then stopped."""
        with self._connector() as name:
            self.worker.stop(name)
            _wait_until_idle(name)
            yield name

    def create(self, name: str) -> None:
        """Make a connector, or one that a crash has ended again."""
        server = urlsplit(os.environ["DATABASE_URL"])
        self.worker.create(
            name,
            {
                **_ROUTER,
                "database.hostname": server.hostname or "",
                "database.port": str(server.port or 5432),
                "database.user": server.username or "",
                "database.password": server.password or "",
                "database.dbname": server.path.strip("/"),
                "topic.prefix": name,
                "slot.name": name,
                "publication.name": name,
                **self.settings,
            },
        )

    @contextmanager
    def _connector(self) -> Iterator[str]:
        """Have a connector that has relayed a first row."""
        name = f"bench_{next(_numbers)}_{os.getpid()}"
        empty()
        self.create(name)
        try:
            self._probe(name)
            yield name
            self.worker.check(name)
        finally:
            self.worker.delete(name)
            _wait_until_idle(name)
            with connect() as connection:
                connection.execute(
                    "SELECT pg_drop_replication_slot(slot_name)"
                    " FROM pg_replication_slots WHERE slot_name = %s",
                    [name],
                )
                connection.execute(
                    f"DROP PUBLICATION IF EXISTS {name}"  # type: ignore[arg-type]
                )
            empty()

    def _probe(self, name: str) -> None:
        """Return when a row has made its way, and its offset can be kept."""
        eventually(
            lambda: self.worker.check(name) or _is_active(name), what="an active slot"
        )
        topic = new_topic()
        Workload(name="probe", records=1).fill(topic)
        arrivals.wait_for(topic, 1, timeout=60)
        time.sleep(0.5)  # the producer's acknowledgement, which nobody can ask for


_numbers = count(1)


def _is_active(slot: str) -> bool:
    with connect() as connection:
        row = connection.execute(
            "SELECT active FROM pg_replication_slots WHERE slot_name = %s", [slot]
        ).fetchone()
    return row == (True,)


def _wait_until_idle(slot: str) -> None:
    eventually(lambda: not _is_active(slot), what="an idle slot")
