"""
What the machine can do at most: Kafka's client alone, PostgreSQL alone.

No relay can be faster than the slower of both; the backlog's figures have each
side's share of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from confluent_kafka import Producer

from .readings import Book
from .servers import connect
from .session import Session
from .workload import Workload, empty, new_topic

NAME = "floors"
PAGE = 1000
TRIPS = 5000
"""Messages that wait for each other."""
SIZE = 200
"""Bytes of each value."""

LIMITS = ("librdkafka, reports", "PostgreSQL")
"""What a relay cannot do without: to hear of each message, to read and to delete."""


def run(session: Session) -> None:
    records = session.scale.raw
    sides: dict[str, Callable[[int], float]] = {
        "librdkafka": lambda n: produce(n, is_reported=False),
        "librdkafka, reports": lambda n: produce(n, is_reported=True),
        "PostgreSQL": select_and_delete,
    }
    for _ in range(session.rounds):
        for side, measure in sides.items():
            note(session.book, side, records, measure(records))
        trips = min(TRIPS, records)
        rate = trips / one_at_a_time(trips)
        session.book.note(NAME, "one at a time", "librdkafka", rate)


def limit(book: Book) -> float | None:
    """Return the records a second that no relay exceeds; None: not measured."""
    medians = [
        summary.median
        for summary in book.summaries()
        if summary.benchmark == NAME and summary.side in LIMITS
    ]
    return min(medians, default=None)


def note(book: Book, side: str, records: int, seconds: float) -> None:
    book.note(NAME, f"{records:,} × {SIZE} bytes", side, records / seconds)


def produce(records: int, *, is_reported: bool) -> float:
    """Send messages from Python as fast as the client takes them; seconds."""
    topic, value = new_topic(), b"x" * SIZE
    producer = Producer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    # Connected, and the topic known, as with a relay that has begun to work.
    producer.list_topics(topic, timeout=10)
    arrived: list[object] = []
    report = (lambda _error, message: arrived.append(message)) if is_reported else None
    began = time.monotonic()
    for number in range(records):
        while True:
            try:
                producer.produce(
                    topic, value, f"key-{number % 1000}", on_delivery=report
                )
                break
            except BufferError:
                producer.poll(0.1)
        if is_reported and not number % 1000:
            producer.poll(0)
    assert producer.flush(120) == 0
    return time.monotonic() - began


def one_at_a_time(messages: int) -> float:
    """Produce each message when the one before is acknowledged; seconds."""
    topic, value = new_topic(), b"x" * SIZE
    producer = Producer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
        }
    )
    # The first one also connects.
    began = 0.0
    for number in range(messages + 1):
        producer.produce(topic, value, "key")
        while len(producer):
            producer.poll(1.0)
        began = began if number else time.monotonic()
    return time.monotonic() - began


def select_and_delete(records: int) -> float:
    """Read all rows in id order and delete them, page by page; seconds."""
    Workload(name="floor", records=records).fill("bench-floor")
    position = 0
    began = time.monotonic()
    with connect() as connection, connection.cursor(binary=True) as cursor:
        while rows := cursor.execute(
            "SELECT id, kafka_topic, kafka_key, kafka_value, message_id FROM outbox"
            " WHERE id > %s ORDER BY id LIMIT %s",
            [position, PAGE],
        ).fetchall():
            position = rows[-1][0]
            ids = "{" + ",".join([str(row[0]) for row in rows]) + "}"
            connection.execute("DELETE FROM outbox WHERE id = ANY(%s::bigint[])", [ids])
    seconds = time.monotonic() - began
    empty()
    return seconds
