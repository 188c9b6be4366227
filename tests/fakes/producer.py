"""
A Kafka in memory, behind the relay's port `Producer`.

`InMemoryLog` is the cluster, `InMemoryProducer` one client of it. It passes
the scenarios that the real producer passes (`tests/contracts`): what is
produced waits until `poll()`, a request that is too large fails as a whole, and
a pipelined client sends nothing behind it.
"""

from __future__ import annotations

import zlib
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from django_outbox.exceptions import DeliveryFailed, ProducerBroken, RecordPoisoned
from django_outbox.message.headers import Envelope, Headers
from django_outbox.message.record import Record
from django_outbox.relay.batch import Accepted, Batch, Fault
from django_outbox.relay.ports import Outcome
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
        self.proven_topics: set[str] = set()
        self._log = log
        options = named(options or OutboxSettings())
        self._envelope = Envelope(options)
        self._is_pipelined = options.is_pipelined
        self._max_queued = max_queued
        self._queue: deque[tuple[Queued, Sent]] = deque()
        self._sent: list[Sent] = []
        self._places: defaultdict[str, set[int]] = defaultdict(set)
        self._fault: ProducerBroken | None = None
        self.delivered = 0

    def produce(self, batch: Batch, leader_id: str) -> Accepted:
        sent = Sent(batch)
        for record in batch.records:
            try:
                headers = self._envelope.headers(record, leader_id)
                if self._fault is not None and not batch.is_apart:
                    raise self._fault
            except DeliveryFailed as error:
                return Accepted(sent.left, error)
            if len(self._queue) >= self._max_queued:
                return Accepted(sent.left)
            if not sent.left:
                self._sent.append(sent)
            sent.left += 1
            self._queue.append((Queued(record, headers), sent))
        return Accepted(sent.left)

    def poll(self, timeout: float) -> Sequence[Outcome]:
        if self._log.is_down:
            return []
        requests: defaultdict[tuple[object, ...], list[tuple[Queued, Sent]]]
        requests = defaultdict(list)
        while self._queue:
            queued, sent = self._queue.popleft()
            record = queued.record
            topic = self._log.topic(record.topic)
            partition = partition_of(record, topic)
            if topic is None:
                sent.fail(record, refusal("UNKNOWN_TOPIC_OR_PART"))
            elif partition >= topic.partitions:
                sent.fail(record, refusal("_UNKNOWN_PARTITION"))
            else:
                single = record.id if sent.batch.is_apart else None
                requests[record.topic, partition, single].append((queued, sent))
        for request in requests.values():
            self._send(request)
        return self._ended()

    def purge(self) -> Sequence[Outcome]:
        abandoned = DeliveryFailed("The record was given up.", code="_PURGE_QUEUE")
        while self._queue:
            queued, sent = self._queue.popleft()
            sent.fail(queued.record, abandoned)
        return self._ended()

    def close(self) -> None:
        self._queue.clear()
        self._sent.clear()

    def _send(self, request: list[tuple[Queued, Sent]]) -> None:
        """Send what shares a request: all of it is in the log then, or nothing."""
        is_apart = request[0][1].batch.is_apart
        topic = self._log.topic(request[0][0].record.topic)
        assert topic is not None, "requests are to topics that exist"
        size = sum(queued.size for queued, _ in request)
        error: DeliveryFailed | None = None if is_apart else self._fault
        if error is None and size > topic.max_message_bytes:
            error = refusal("MSG_SIZE_TOO_LARGE", is_certain=is_apart)
            if self._is_pipelined and not is_apart:
                self._fault = ProducerBroken("A record was refused.", code="_FATAL")
        for queued, sent in request:
            if error is not None:
                sent.fail(queued.record, error)
                continue
            partition = partition_of(queued.record, topic)
            self._log.append(queued, partition)
            sent.left -= 1
            self.delivered += 1
            if sent.batch.proves_keys:
                sent.batch.proven.append(queued.record.ordering_key)
                self._prove(queued.record.topic, partition, topic.partitions)

    def _prove(self, topic: str, partition: int, partitions: int) -> None:
        self._places[topic].add(partition)
        if len(self._places[topic]) >= partitions:
            self.proven_topics.add(topic)

    def _ended(self) -> Sequence[Outcome]:
        """Take out the batches of which each record has a report."""
        ended = [sent for sent in self._sent if not sent.left]
        self._sent = [sent for sent in self._sent if sent.left]
        return [(sent.batch, sent.faults) for sent in ended]


class Queued(NamedTuple):
    """A record that is queued for the log."""

    record: Record
    headers: Headers

    @property
    def size(self) -> int:
        texts = [text for header in self.headers for text in header]
        texts += [self.record.key, self.record.value]
        return sum(len(_bytes(text) or b"") for text in texts)


@dataclass(slots=True, eq=False)
class Sent:
    """A batch without an outcome."""

    batch: Batch
    left: int = 0
    """Records without a report."""
    faults: list[Fault] = field(default_factory=list)

    def fail(self, record: Record, error: DeliveryFailed) -> None:
        """Take the report of a record that is not in the log."""
        self.left -= 1
        self.faults.append(Fault(record, error))


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
