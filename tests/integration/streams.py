"""Records that come into a topic without a pause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from confluent_kafka import Producer

INTERVAL = 0.005
"""Seconds between two records: fewer than a client waits for at the end of a topic."""


@contextmanager
def streaming(servers: str, topic: str, value: bytes) -> Iterator[None]:
    """Write to partition 0 of a topic, again and again, from the first one on."""
    has_begun, must_end = Event(), Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        while not must_end.wait(INTERVAL):
            producer.produce(
                topic, value, partition=0, on_delivery=lambda *_: has_begun.set()
            )
            producer.poll(0)
        producer.flush(60)

    writer = Thread(target=write)
    writer.start()
    try:
        assert has_begun.wait(60)
        yield
    finally:
        must_end.set()
        writer.join()
