"""
A Kafka in memory: what the relay sends arrives here, or fails if the test says so.

Its producer implements the relay's port `Producer`, with the headers and partitions
of the real one. As there, nothing is sent behind a record that was not delivered.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from ..exceptions import DeliveryFailed, ProducerBroken, RecordPoisoned
from ..message.headers import Envelope, Headers
from ..message.incoming import ConsumedMessage, TopicPartition
from ..message.record import Record
from ..relay.batch import Accepted, Batch, Fault
from ..relay.ports import Outcome
from ..settings.options import OutboxSettings

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995
"""Constants of MurmurHash2."""


class DeliveryFault:
    """Makes deliveries fail until it is used up or stopped."""

    def __init__(
        self, topic: str, key: str | None, error: DeliveryFailed, times: int | None
    ) -> None:
        self.count = 0
        """Deliveries that have failed because of it."""
        self._topic, self._key = topic, key
        self._error, self._left = error, times

    def stop(self) -> None:
        """Let no further delivery fail."""
        self._left = 0

    def strikes(self, record: Record) -> DeliveryFailed | None:
        """Return why this delivery fails, and count it; None: it does not."""
        is_meant = record.topic == self._topic and self._key in (None, record.key)
        if self._left == 0 or not is_meant:
            return None
        self.count += 1
        if self._left is not None:
            self._left -= 1
        return self._error


class InMemoryKafka:
    """The topics of one test; a topic exists once a message is sent to it."""

    def __init__(self) -> None:
        self.messages: list[ConsumedMessage] = []
        """All messages that have arrived, in the order of their arrival."""
        self._faults: list[DeliveryFault] = []
        self._partitions: dict[str, int] = {}
        self._ends: defaultdict[TopicPartition, int] = defaultdict(int)

    def create_topic(self, name: str, *, partitions: int) -> None:
        """Create a topic with more than one partition."""
        self._partitions[name] = partitions

    def add_fault(self, fault: DeliveryFault) -> DeliveryFault:
        """Let deliveries fail; of several faults the first one counts."""
        self._faults.append(fault)
        return fault

    def deliver(self, record: Record, headers: Headers) -> None:
        """
        Write a record at the end of its partition.

        Raises:
            DeliveryFailed: a fault of the test.
            RecordPoisoned: a topic that was created does not have its partition.
        """
        for fault in self._faults:
            if (error := fault.strikes(record)) is not None:
                raise error
        partition, key = record.partition, record.key.encode()
        if partition is None:
            partition = partition_of(key, self._partitions.get(record.topic, 1))
        elif partition >= self._partitions.get(record.topic, partition + 1):
            raise RecordPoisoned(
                "The topic does not have this partition.", code="_UNKNOWN_PARTITION"
            )
        place = (record.topic, partition)
        message = ConsumedMessage(
            topic=record.topic,
            partition=partition,
            offset=self._ends[place],
            key=key,
            value=_bytes(record.value),
            headers=tuple((name, _bytes(text)) for name, text in headers),
            timestamp=datetime.now(UTC),
        )
        self._ends[place] += 1
        self.messages.append(message)


class InMemoryProducer:
    """
    A client of an `InMemoryKafka`; one object serves one thread.

    Args:
        options: the settings of the outbox, with the names of the election.
    """

    def __init__(self, kafka: InMemoryKafka, options: OutboxSettings) -> None:
        self.proven_topics: set[str] = set()
        """Stays empty: this Kafka is asked for no proof."""
        self._kafka = kafka
        self._envelope = Envelope(options)
        self.delivered = 0
        self._is_pipelined = options.is_pipelined
        self._queue: deque[tuple[Batch, list[Headers]]] = deque()
        self._fault: ProducerBroken | None = None

    def produce(self, batch: Batch, leader_id: str) -> Accepted:
        queued: list[Headers] = []
        error: DeliveryFailed | None = None if batch.is_apart else self._fault
        for record in batch.records if error is None else ():
            try:
                queued.append(self._envelope.headers(record, leader_id))
            except DeliveryFailed as refusal:
                error = refusal
                break
        if queued:
            self._queue.append((batch, queued))
        return Accepted(len(queued), error)

    def poll(self, timeout: float) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        while self._queue:
            batch, queued = self._queue.popleft()
            faults = []
            for record, headers in zip(batch.records, queued, strict=True):
                error = self._send(record, headers, batch)
                if error is not None:
                    faults.append(Fault(record, error))
            outcomes.append((batch, faults))
        return outcomes

    def purge(self) -> Sequence[Outcome]:
        error = DeliveryFailed("The record was given up.", code="_PURGE_QUEUE")
        batches = [batch for batch, _ in self._queue]
        self._queue.clear()
        return [(b, [Fault(record, error) for record in b.records]) for b in batches]

    def close(self) -> None:
        self._queue.clear()

    def _send(
        self, record: Record, headers: Headers, batch: Batch
    ) -> DeliveryFailed | None:
        """Deliver one record; return why it was not delivered."""
        if self._fault is not None and not batch.is_apart:
            return self._fault
        try:
            self._kafka.deliver(record, headers)
        except DeliveryFailed as error:
            if self._is_pipelined and not batch.is_apart:
                # Nothing may overtake the record: the next producer sends the rest.
                self._fault = ProducerBroken("A record failed.", code="_FATAL")
            return error
        self.delivered += 1
        return None


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key: murmur2, as Kafka's own clients hash it."""
    h = (0x9747B28C ^ len(key)) & _MASK
    whole = len(key) & ~3
    for start in range(0, whole, 4):
        k = (int.from_bytes(key[start : start + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if whole < len(key):
        h = ((h ^ int.from_bytes(key[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return ((h ^ (h >> 15)) & 0x7FFFFFFF) % partitions


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
