"""
Relays that everybody writes first.

*Naive* selects a page, produces, flushes, deletes. It elects nobody, survives
nothing and keeps no order after a failure. *Bare cursor* remembers the highest
id that it has seen, and so never sees rows that are committed behind it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from .servers import connect
from .sides import Drained, Running
from .workload import Workload

_PAGE = "SELECT id, kafka_topic, kafka_key, kafka_value FROM outbox"
_ORDER = " ORDER BY id LIMIT 1000"


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


class CursorSide:
    """A relay that follows the highest id, on a thread of this process."""

    name = "bare cursor"

    def drain(self, workload: Workload, topic: str) -> Drained:
        raise NotImplementedError("it is here to lose rows")

    @contextmanager
    def running(self, topic: str) -> Iterator[Running]:
        stop = threading.Event()
        thread = threading.Thread(target=self._follow, args=(stop,))
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()

    def cpu_seconds(self) -> float:
        return time.process_time()

    def _follow(self, stop: threading.Event) -> None:
        producer, position = _producer(), 0
        with connect() as connection:
            while not stop.wait(0.002):
                rows = connection.execute(f"{_PAGE} WHERE id > {position}{_ORDER}")
                for id, topic, key, value in rows.fetchall():
                    position = id
                    producer.produce(topic, value, key, headers=_headers(id))
                producer.flush()


def _relay() -> None:
    producer = _producer()
    with connect() as connection:
        while rows := connection.execute(f"{_PAGE}{_ORDER}").fetchall():
            for id, topic, key, value in rows:
                producer.produce(topic, value, key, headers=_headers(id))
            producer.flush()
            ids = [row[0] for row in rows]
            connection.execute("DELETE FROM outbox WHERE id = ANY(%s)", [ids])


def _headers(id: int) -> list[tuple[str, str | bytes | None]]:
    return [("kind", "benchmark"), ("outbox-id", str(id))]


def _producer() -> Producer:
    return Producer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
        }
    )
