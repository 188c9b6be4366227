"""
Relays that everybody writes first.

*Naive* selects a page, produces, flushes, deletes. It elects nobody, survives
nothing and keeps no order after a failure. *Bare cursor* remembers the highest
id that it has seen, and so never sees rows that are committed behind it.

Messages have the same headers as those of a harvester.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Final

from confluent_kafka import Producer

from .servers import connect
from .sides import Drained, Running
from .workload import Workload

PAGE_ROWS: Final = 5000

ROWS: Final = """
SELECT id, kafka_topic, kafka_key, kafka_value, message_id::text,
       (extract(epoch FROM create_time) * 1000000)::bigint
FROM outbox WHERE id > %s ORDER BY id LIMIT %s
"""
DELETE: Final = "DELETE FROM outbox WHERE id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class LoopSide:
    """A loop without faults and without an election, in a process of its own."""

    name: str
    loop: Callable[[], None]
    """Empties the table."""

    def drain(self, workload: Workload, topic: str) -> Drained:
        workload.fill(topic)
        # Not this process, whose garbage collector would look through what all
        # earlier benchmarks have left.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            return alone.submit(_timed, self.loop).result()

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
        client, position = producer(), 0
        with connect() as connection:
            while not stop.wait(0.002):
                rows = connection.execute(ROWS, [position, PAGE_ROWS]).fetchall()
                for row in rows:
                    client.produce(row[1], row[3], row[2], headers=headers(row))
                client.flush()
                position = rows[-1][0] if rows else position


def relay() -> None:
    """Select a page, produce it, flush, delete it; until the table is empty."""
    client = producer()
    with connect() as connection, connection.cursor(binary=True) as cursor:
        while rows := cursor.execute(ROWS, [0, PAGE_ROWS]).fetchall():
            for row in rows:
                client.produce(row[1], row[3], row[2], headers=headers(row))
            client.flush()
            cursor.execute(DELETE, [[row[0] for row in rows]])


def headers(row: tuple[Any, ...]) -> list[tuple[str, str | bytes | None]]:
    """Return what a harvester adds to each message."""
    return [
        ("outbox-message-id", row[4]),
        ("outbox-id", str(row[0])),
        ("outbox-source", "benchmark"),
        ("outbox-created-at", str(row[5])),
    ]


def producer(**options: object) -> Producer:
    """Connect to the broker; properties have underscores in place of dots."""
    return Producer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )


def _timed(loop: Callable[[], None]) -> Drained:
    began, cpu = time.monotonic(), time.process_time()
    loop()
    return Drained(
        seconds=time.monotonic() - began, cpu_seconds=time.process_time() - cpu
    )


NAIVE: Final = LoopSide("naive", relay)
