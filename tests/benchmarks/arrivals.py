"""What has arrived in a topic: how much, which records, when."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from ..waiting import eventually
from .workload import PARTITIONS

_LEADERLESS = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""Of a partition that was made a moment ago."""

ID_HEADERS = frozenset({"outbox-id", "id"})
"""Where our relay, and Debezium's router, say which row it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """A topic from its beginning to its end."""

    messages: int
    records: int
    """Different ones."""
    seconds: float
    """From the first message to the last, by the broker's clock."""
    head: int = 0
    """Messages of the first moment: they came before the clock started."""

    @property
    def rate(self) -> float:
        """Messages a second, without those that came before the clock started."""
        return max(1, self.messages - self.head) / self.seconds


def row_id(message: Message) -> int:
    """Return the id of the row that a message was made of; -1: it does not say."""
    for name, text in message.headers() or ():
        if name in ID_HEADERS and text is not None:
            return int(text)
    return _task_id(message.value())


def _task_id(value: bytes | None) -> int:
    """Return the id that Celery puts into the value, with all of its headers."""
    try:
        return int(json.loads(value or b"")["headers"]["id"])
    except (ValueError, TypeError, KeyError):
        return -1


@contextmanager
def consumer(**options: object) -> Iterator[Consumer]:
    """Open a consumer of its own."""
    opened = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": f"bench-{uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **options,
        }
    )
    try:
        yield opened
    finally:
        opened.close()


def read(topic: str, *, timeout: float = 600.0) -> Arrivals:
    """Read all committed messages of a topic."""
    seen: set[int] = set()
    moments: Counter[int] = Counter()
    """Messages by their time in milliseconds: those of one batch share it."""
    at_end: set[int] = set()
    deadline = time.monotonic() + timeout
    with consumer(**{"enable.partition.eof": True}) as opened:
        opened.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
        while len(at_end) < PARTITIONS:
            assert time.monotonic() < deadline, f"{moments.total()} messages of {topic}"
            for message in opened.consume(10_000, 0.2):
                if (error := message.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    at_end.add(message.partition() or 0)
                    continue
                seen.add(row_id(message))
                moments[message.timestamp()[1]] += 1
    first, last = min(moments, default=0), max(moments, default=0)
    return Arrivals(
        messages=moments.total(),
        records=len(seen),
        seconds=max(1, last - first) / 1000,
        head=moments[first],
    )


def count(topic: str) -> int:
    """Count the messages of a topic without transactions."""
    with consumer() as opened:
        return _count(opened, topic)


def wait_for(topic: str, messages: int, *, timeout: float = 600.0) -> None:
    """Return when a topic without transactions has so many messages."""
    with consumer() as opened:
        eventually(
            lambda: _count(opened, topic) >= messages,
            timeout=timeout,
            # Each question takes time from what is measured.
            interval=0.1,
            what=lambda: f"{_count(opened, topic)} of {messages}",
        )


def _count(opened: Consumer, topic: str) -> int:
    """Count messages; none while a client still looks for a partition's leader."""
    try:
        return sum(_ends(opened, topic))
    except KafkaException as error:
        if error.args[0].code() not in _LEADERLESS:
            raise
        return 0


def _ends(opened: Consumer, topic: str) -> list[int]:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    return [opened.get_watermark_offsets(place, timeout=10)[1] for place in places]
