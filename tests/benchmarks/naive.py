"""
The relay that everybody writes first: select a page, produce, flush, delete.

It elects nobody, survives nothing and keeps no order after a failure.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from .servers import connect
from .sides import Drained, Running
from .workload import Workload


class NaiveSide:
    """That relay, in this process."""

    name = "naive"

    def drain(self, workload: Workload, topic: str) -> Drained:
        workload.fill(topic)
        began, cpu = time.monotonic(), time.process_time()
        _relay()
        return Drained(
            seconds=time.monotonic() - began, cpu_seconds=time.process_time() - cpu
        )

    @contextmanager
    def running(self, topic: str) -> Iterator[Running]:
        raise NotImplementedError("it drains, and ends")
        yield


def _relay() -> None:
    producer = Producer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
        }
    )
    with connect() as connection:
        while rows := connection.execute(
            "SELECT id, kafka_topic, kafka_key, kafka_value FROM outbox"
            " ORDER BY id LIMIT 1000"
        ).fetchall():
            for id, topic, key, value in rows:
                headers = [("kind", "benchmark"), ("outbox-id", str(id))]
                producer.produce(topic, value, key, headers=headers)
            producer.flush()
            ids = [row[0] for row in rows]
            connection.execute("DELETE FROM outbox WHERE id = ANY(%s)", [ids])
