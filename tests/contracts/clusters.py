"""
One Kafka to try a scenario on: in memory, or a real one.

Each class says how a test makes topics and reads them; what the relay does
goes through the adapter that `producer()` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Message

from django_outbox.exceptions import DeliveryFailed
from django_outbox.kafka.producer import KafkaProducer
from django_outbox.message.record import Record
from django_outbox.relay.batch import Accepted, Batch
from django_outbox.relay.ports import Outcome, Producer
from django_outbox.settings.options import OutboxSettings
from tests.fakes.producer import InMemoryLog, InMemoryProducer, InMemoryTopic, named
from tests.services import Topics
from tests.waiting import eventually

NOWHERE: Final = "127.0.0.1:1"
LEADER: Final = "11111111-1111-4111-8111-111111111111"


class Read(NamedTuple):
    """What a consumer sees of a message."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Reports(list[tuple[int, DeliveryFailed | None]]):
    """Collects what became of records: the id of each, and why it was refused."""

    def send(
        self, producer: Producer, *records: Record, apart: bool = False
    ) -> Accepted:
        """Produce a batch; what is not accepted of it has no report."""
        batch = Batch(
            records=records, taken_at=0.0, is_apart=apart, proves_keys=not apart
        )
        accepted = producer.produce(batch, LEADER)
        batch.records = records[: accepted.queued]
        return accepted

    def wait(self, producer: Producer, count: int) -> None:
        """Poll until there are so many reports."""
        eventually(
            lambda: len(self) >= count,
            what=lambda: f"{len(self)} reports of {count}",
            meanwhile=lambda: self.take(producer.poll(0.05)),
        )

    def take(self, outcomes: Sequence[Outcome]) -> None:
        """Note the outcome of each record of these batches."""
        for batch, faults in outcomes:
            errors = {fault.record.id: fault.error for fault in faults}
            assert len(errors) == len(faults), "a record has one fault"
            ids = [record.id for record in batch.records]
            assert errors.keys() <= set(ids), "a fault is of a record of the batch"
            self.extend((number, errors.get(number)) for number in ids)


class MemoryCluster:
    """The fake."""

    def __init__(self) -> None:
        self._log = InMemoryLog()
        self._count = 0

    def create(self, *, partitions: int = 1, max_message_bytes: int = 1_048_588) -> str:
        self._count += 1
        topic = InMemoryTopic(
            partitions=partitions, max_message_bytes=max_message_bytes
        )
        return self._log.create(f"topic-{self._count}", topic)

    def producer(self, **options: Any) -> Producer:
        return InMemoryProducer(self._log, OutboxSettings(**options))

    def producer_without_auto_create(self) -> Producer:
        return InMemoryProducer(InMemoryLog(has_auto_create=False))

    def producer_out_of_reach(self, *, max_queued: int) -> Producer:
        log = InMemoryLog()
        log.is_down = True
        return InMemoryProducer(log, max_queued=max_queued)

    def wait_for_arrival(self, topic: str) -> None:
        """Nothing arrives before the producer is polled."""

    def read(self, topic: str, count: int) -> list[Read]:
        messages = self._log.of(topic)
        assert len(messages) == count
        return [Read(*message[1:]) for message in messages]


class KafkaCluster:
    """The real one."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._topics = Topics(bootstrap_servers)

    def create(self, *, partitions: int = 1, max_message_bytes: int = 1_048_588) -> str:
        config = {"max.message.bytes": str(max_message_bytes)}
        return self._topics.create(partitions=partitions, config=config)

    def producer(self, **options: Any) -> Producer:
        servers = {"bootstrap.servers": self._servers}
        return KafkaProducer(named(OutboxSettings(KAFKA=servers, **options)))

    def producer_without_auto_create(self) -> Producer:
        return self.producer(PRODUCER_KAFKA={"allow.auto.create.topics": False})

    def producer_out_of_reach(self, *, max_queued: int) -> Producer:
        properties = {
            "bootstrap.servers": NOWHERE,
            "queue.buffering.max.messages": max_queued,
        }
        return KafkaProducer(named(OutboxSettings(KAFKA=properties)))

    def wait_for_arrival(self, topic: str) -> None:
        self.read(topic, 1)

    def read(self, topic: str, count: int) -> list[Read]:
        messages = self._topics.read(topic, at_least=count)
        assert len(messages) == count
        return [_read(message) for message in messages]


def _read(message: Message) -> Read:
    headers: Any = message.headers() or []
    return Read(
        message.partition() or 0,
        message.offset() or 0,
        message.key() or b"",
        message.value(),
        headers,
    )


Cluster = MemoryCluster | KafkaCluster
