"""
A Kafka in memory, behind the relay's port `Producer`.

`InMemoryLog` is the cluster, `InMemoryProducer` one client of it. It passes
the scenarios that the real producer passes (`tests/contracts`): what is
produced waits until `poll()`, and a batch that is too large fails as a whole.
"""

from __future__ import annotations

import zlib
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from typing import NamedTuple

from django_outbox.exceptions import DeliveryFailed, ProducerQueueFull, RecordPoisoned
from django_outbox.message.headers import Envelope, Headers
from django_outbox.message.record import Record
from django_outbox.relay.ports import Report
from django_outbox.settings.options import SHARED_NAME, OutboxSettings


class InMemoryMessage(NamedTuple):
    """A message in the log."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemoryTopic:
    """A topic's configuration in the cluster."""

    partitions: int = 1
    max_message_bytes: int = 1_048_588
    """The largest batch, keys, values and headers together."""


class InMemoryLog:
    """
    The topics of a cluster.

    Args:
        has_auto_create: a record to a topic that is missing creates it.
    """

    def __init__(self, *, has_auto_create: bool = True) -> None:
        self.is_down = False
        """While True nothing is acknowledged."""
        self.messages: list[InMemoryMessage] = []
        """All committed messages, in order."""
        self._has_auto_create = has_auto_create
        self._topics: dict[str, InMemoryTopic] = {}
        self._ends: defaultdict[tuple[str, int], int] = defaultdict(int)

    def create(self, name: str, topic: InMemoryTopic | None = None) -> str:
        """Make a topic, or change it; return its name."""
        self._topics[name] = topic or InMemoryTopic()
        return name

    def of(self, topic: str) -> list[InMemoryMessage]:
        """Return the messages of one topic, in order."""
        return [message for message in self.messages if message.topic == topic]

    def topic(self, name: str) -> InMemoryTopic | None:
        """Return a topic's configuration; None if it does not exist."""
        if name not in self._topics and self._has_auto_create:
            self.create(name)
        return self._topics.get(name)

    def append(self, queued: Queued, partition: int) -> None:
        """Write one message at the end of its partition."""
        topic, key, value = queued.record.topic, queued.record.key, queued.record.value
        offset = self._ends[topic, partition]
        self._ends[topic, partition] += 1
        self.messages.append(
            InMemoryMessage(
                topic=topic,
                partition=partition,
                offset=offset,
                key=key.encode(),
                value=_bytes(value),
                headers=[(name, _bytes(text)) for name, text in queued.headers],
            )
        )


class InMemoryProducer:
    """
    A client of an `InMemoryLog`; one object serves one thread.

    A record without a partition goes where a hash of its key says, but not
    the hash that Kafka's clients use.

    Args:
        options: the settings of the outbox, for the headers.
        max_queued: records after which the queue is full.
    """

    def __init__(
        self,
        log: InMemoryLog,
        options: OutboxSettings | None = None,
        *,
        max_queued: int = 100_000,
    ) -> None:
        self._log = log
        self._envelope = Envelope(named(options or OutboxSettings()))
        self._max_queued = max_queued
        self._queue: deque[Queued] = deque()

    def produce(
        self, record: Record, leader_id: str, settled: Report, *, alone: bool = False
    ) -> None:
        headers = self._envelope.headers(record, leader_id)
        if len(self._queue) >= self._max_queued:
            raise ProducerQueueFull
        self._queue.append(Queued(record, headers, settled, alone))

    def poll(self, timeout: float) -> int:
        if self._log.is_down:
            return 0
        batches: defaultdict[tuple[object, ...], list[Queued]] = defaultdict(list)
        count = len(self._queue)
        while self._queue:
            queued = self._queue.popleft()
            topic = self._log.topic(queued.record.topic)
            partition = partition_of(queued.record, topic)
            if topic is None:
                queued.fail("UNKNOWN_TOPIC_OR_PART")
            elif partition >= topic.partitions:
                queued.fail("_UNKNOWN_PARTITION")
            else:
                single = queued.record.id if queued.alone else None
                batches[queued.record.topic, partition, single].append(queued)
        for batch in batches.values():
            self._send(batch)
        return count

    def purge(self) -> None:
        while self._queue:
            queued = self._queue.popleft()
            error = DeliveryFailed("The record was given up.", code="_PURGE_QUEUE")
            queued.settled(queued.record, error)

    def close(self) -> None:
        self._queue.clear()

    def _send(self, batch: list[Queued]) -> None:
        topic = self._log.topic(batch[0].record.topic)
        assert topic is not None, "batches are of topics that exist"
        is_large = sum(queued.size for queued in batch) > topic.max_message_bytes
        for queued in batch:
            if is_large:
                queued.fail("MSG_SIZE_TOO_LARGE", is_certain=queued.alone)
            else:
                self._log.append(queued, partition_of(queued.record, topic))
                queued.settled(queued.record, None)


class Queued(NamedTuple):
    """A record that is queued for the log."""

    record: Record
    headers: Headers
    settled: Report = lambda *_: None
    alone: bool = False

    @property
    def size(self) -> int:
        texts = [text for header in self.headers for text in header]
        texts += [self.record.key, self.record.value]
        return sum(len(_bytes(text) or b"") for text in texts)

    def fail(self, code: str, *, is_certain: bool = True) -> None:
        self.settled(self.record, refusal(code, is_certain=is_certain))


def refusal(code: str, *, is_certain: bool = True) -> RecordPoisoned:
    """Return the error of a record that the log refuses."""
    text = "The log does not take this record."
    return RecordPoisoned(text, code=code, is_certain=is_certain)


def partition_of(record: Record, topic: InMemoryTopic | None) -> int:
    """Return a record's explicit partition, or one by the hash of its key."""
    if record.partition is not None or topic is None:
        return record.partition or 0
    return zlib.crc32(record.key.encode()) % topic.partitions


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def named(options: OutboxSettings) -> OutboxSettings:
    """Name the election if the settings do not: there is no database to ask."""
    return options if options.is_named else replace(options, LEADER_TOPIC=SHARED_NAME)
