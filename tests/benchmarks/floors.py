"""
What the machine can do at most: Kafka's client alone, PostgreSQL alone.

No relay is faster than the slower of both, and two machines are compared by them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .naive import DELETE, ROWS, producer
from .servers import connect
from .session import Session
from .workload import Workload, empty, new_topic

NAME = "floors"
PAGE = 1000
SIZE = 200
"""Bytes of each value."""


def run(session: Session) -> None:
    records = session.scale.raw
    sides: dict[str, Callable[[int], float]] = {
        "librdkafka": lambda n: produce(n, is_reported=False),
        "librdkafka, reports": lambda n: produce(n, is_reported=True),
        "PostgreSQL": select_and_delete,
    }
    case = f"{records:,} × {SIZE} bytes"
    for _ in range(session.rounds):
        for side, measure in sides.items():
            session.book.note(NAME, case, side, records / measure(records))


def produce(records: int, *, is_reported: bool) -> float:
    """Send messages from Python as fast as the client takes them; seconds."""
    topic, value, client = new_topic(), b"x" * SIZE, producer()
    # Connected, and the topic known, as with a relay that has begun to work.
    client.list_topics(topic, timeout=10)
    arrived: list[object] = []
    report = (lambda _error, message: arrived.append(message)) if is_reported else None
    began = time.monotonic()
    for number in range(records):
        client.produce(topic, value, f"key-{number % 1000}", on_delivery=report)
        if is_reported and not number % PAGE:
            client.poll(0)
    assert client.flush(120) == 0
    return time.monotonic() - began


def select_and_delete(records: int) -> float:
    """Read all rows in id order and delete them, page by page; seconds."""
    Workload(name="floor", records=records).fill("bench-floor")
    position = 0
    began = time.monotonic()
    with connect() as connection, connection.cursor(binary=True) as cursor:
        while rows := cursor.execute(ROWS, [position, PAGE]).fetchall():
            position = rows[-1][0]
            connection.execute(DELETE, [[row[0] for row in rows]])
    seconds = time.monotonic() - began
    empty()
    return seconds
