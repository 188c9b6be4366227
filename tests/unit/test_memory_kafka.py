"""The Kafka of users' tests: partitions, order behind a failure, faults."""

from __future__ import annotations

from typing import Any

import pytest

from django_outbox.exceptions import DeliveryFailed, ProducerBroken, RecordPoisoned
from django_outbox.message.record import Record
from django_outbox.relay.batch import Batch
from django_outbox.settings.options import OutboxSettings
from django_outbox.testing.memory_kafka import (
    DeliveryFault,
    InMemoryKafka,
    InMemoryProducer,
    partition_of,
)

from .samples import record

LEADER = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def kafka() -> InMemoryKafka:
    return InMemoryKafka()


def producer(kafka: InMemoryKafka, **options: Any) -> InMemoryProducer:
    names: dict[str, Any] = {"LEADER_TOPIC": "leaders", "LEADER_GROUP": "leaders"}
    return InMemoryProducer(kafka, OutboxSettings(**names, **options))


def send(client: InMemoryProducer, *records: Record, **of_batch: Any) -> list[str]:
    """Send a batch; return the code of each fault as `id code`."""
    batch = Batch(records=records, taken_at=0.0, **of_batch)
    accepted = client.produce(batch, LEADER)
    batch.records = records[: accepted.queued]
    if accepted.error is not None:
        return [f"unsent {accepted.error.code}"]
    return [f"{r.id} {error.code}" for _, f in client.poll(0) for r, error in f]


def fault(topic: str, key: str | None = None, times: int | None = 1) -> DeliveryFault:
    return DeliveryFault(topic, key, DeliveryFailed("away", code="AWAY"), times)


@pytest.mark.parametrize(
    ("key", "partition"),
    # The hashes of Kafka's own UtilsTest, without their sign, modulo 1000.
    [
        (b"21", (-973932308 & 0x7FFFFFFF) % 1000),
        (b"foobar", (-790332482 & 0x7FFFFFFF) % 1000),
        (b"a-little-bit-long-string", (-985981536 & 0x7FFFFFFF) % 1000),
        (b"abc", 479470107 % 1000),
    ],
)
def test_a_key_goes_where_the_clients_of_kafka_send_it(
    key: bytes, partition: int
) -> None:
    assert partition_of(key, 1000) == partition


def test_a_partition_that_a_topic_does_not_have_is_refused(
    kafka: InMemoryKafka,
) -> None:
    kafka.create_topic("t", partitions=3)
    faults = send(producer(kafka), record(7)._replace(partition=3))
    assert faults == ["7 _UNKNOWN_PARTITION"]


def test_a_message_has_its_place_and_the_headers_of_the_outbox(
    kafka: InMemoryKafka,
) -> None:
    kafka.create_topic("t", partitions=3)
    chosen = record(7, value="Wert ☂")._replace(
        partition=2, header_keys=["a"], header_values=[None]
    )
    assert send(producer(kafka), chosen, chosen._replace(id=8, value=None)) == []

    first, second = kafka.messages
    assert (first.topic, first.partition, first.offset) == ("t", 2, 0)
    assert (second.partition, second.offset) == (2, 1)
    assert first.value == b"Wert \xe2\x98\x82"
    assert second.is_tombstone
    assert first.headers == (
        ("a", None),
        ("outbox-message-id", b"00000000-0000-4000-8000-000000000007"),
        ("outbox-id", b"7"),
        ("outbox-source", b"leaders"),
        ("outbox-created-at", b"1700000000000000"),
    )


def test_nothing_is_sent_behind_a_failure_of_a_pipelined_producer(
    kafka: InMemoryKafka,
) -> None:
    kafka.add_fault(fault("t"))
    client = producer(kafka)

    assert send(client, record(1), record(2)) == ["1 AWAY", "2 _FATAL"]
    assert send(client, record(3)) == ["unsent _FATAL"]
    assert kafka.messages == []
    assert send(producer(kafka), record(1)) == []


def test_a_record_that_goes_apart_fails_alone(kafka: InMemoryKafka) -> None:
    kafka.add_fault(fault("t"))
    assert send(producer(kafka), record(1), record(2), is_apart=True) == ["1 AWAY"]
    assert [message.offset for message in kafka.messages] == [0]


def test_a_producer_with_one_record_of_a_key_outlives_a_failure(
    kafka: InMemoryKafka,
) -> None:
    kafka.add_fault(fault("t"))
    client = producer(kafka, MAX_IN_FLIGHT_PER_KEY=1)
    assert send(client, record(1), record(2)) == ["1 AWAY"]
    assert send(client, record(1)) == []


def test_a_fault_counts_and_is_of_one_topic_and_key(kafka: InMemoryKafka) -> None:
    meant = kafka.add_fault(fault("t", key="a", times=None))
    client = producer(kafka, MAX_IN_FLIGHT_PER_KEY=1)

    failed = send(client, record(1, "a"), record(2, "b"), record(3, "a", topic="u"))
    assert failed == ["1 AWAY"]
    assert send(client, record(4, "a")) == ["4 AWAY"]
    assert meant.count == 2
    meant.stop()
    assert send(client, record(5, "a")) == []
    assert meant.count == 2


def test_a_header_that_may_not_be_sent_is_refused_unsent(kafka: InMemoryKafka) -> None:
    wrong = record(2)._replace(header_keys=["outbox-id"], header_values=["1"])
    client = producer(kafka)
    batch = Batch(records=[record(1), wrong], taken_at=0.0)
    queued, error = client.produce(batch, LEADER)

    assert queued == 1
    assert isinstance(error, RecordPoisoned)


def test_what_is_purged_was_not_delivered(kafka: InMemoryKafka) -> None:
    client = producer(kafka)
    client.produce(Batch(records=[record(1)], taken_at=0.0), LEADER)

    ((_, (only,)),) = client.purge()
    assert only.error.code == "_PURGE_QUEUE"
    assert not isinstance(only.error, ProducerBroken)
    assert client.delivered == 0
    assert list(client.poll(0)) == []
    assert kafka.messages == []
