"""What becomes of the driver's errors."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from django_outbox.exceptions import DeliveryFailed, ProducerBroken, RecordPoisoned
from django_outbox.kafka import client_errors
from django_outbox.kafka.client_errors import MAX_PROBE_TIMEOUT, ClientErrors
from django_outbox.kafka.failures import failure
from django_outbox.kafka.producer import KafkaProducer
from django_outbox.relay.batch import Batch
from django_outbox.settings.options import OutboxSettings

from .samples import record


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._INVALID_ARG,
    ],
)
def test_a_wrong_destination_is_poison_for_certain(code: int) -> None:
    error = failure(KafkaError(code), is_alone=False)

    assert isinstance(error, RecordPoisoned)
    assert error.is_certain
    assert not error.retriable


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
    ],
)
def test_what_is_said_of_a_batch_is_certain_only_of_a_record_alone(code: int) -> None:
    in_batch = failure(KafkaError(code), is_alone=False)
    alone = failure(KafkaError(code), is_alone=True)

    assert isinstance(in_batch, RecordPoisoned)
    assert isinstance(alone, RecordPoisoned)
    assert not in_batch.is_certain
    assert alone.is_certain


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (KafkaError._MSG_TIMED_OUT, "_MSG_TIMED_OUT"),
        (KafkaError._PURGE_QUEUE, "_PURGE_QUEUE"),
        (KafkaError._PURGE_INFLIGHT, "_PURGE_INFLIGHT"),
        (KafkaError._INVALID_DIFFERENT_RECORD, "_INVALID_DIFFERENT_RECORD"),
        (KafkaError.NOT_ENOUGH_REPLICAS, "NOT_ENOUGH_REPLICAS"),
        (KafkaError.INVALID_TIMESTAMP, "INVALID_TIMESTAMP"),
    ],
)
def test_any_other_error_is_worth_another_try(code: int, name: str) -> None:
    error = failure(KafkaError(code), is_alone=True)

    assert type(error) is DeliveryFailed
    assert error.retriable
    assert error.code == name


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(KafkaError._FATAL),
        KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True),
    ],
)
def test_a_fatal_error_breaks_the_producer(error: KafkaError) -> None:
    assert isinstance(failure(error, is_alone=False), ProducerBroken)


class Client:
    """Kafka's client, which reports what a test says."""

    def __init__(self, error: KafkaError | None, offset: int) -> None:
        self._error, self._offset = error, offset
        self._queued: deque[tuple[Any, Any]] = deque()

    def produce(self, *arguments: Any, headers: object) -> None:
        topic, value, key, _, report = arguments
        message = Message(topic=topic, value=value, key=key, offset=self._offset)
        self._queued.append((report, message))

    def poll(self, timeout: float) -> int:
        served = len(self._queued)
        while self._queued:
            report, message = self._queued.popleft()
            report(self._error, message)
        return served

    def purge(self) -> None:
        """Leave the reports to the next poll."""

    def __len__(self) -> int:
        return len(self._queued)


def report(
    producer: KafkaProducer, error: KafkaError | None, *, offset: int
) -> DeliveryFailed | None:
    """Give the producer a delivery report; return the error that the relay gets."""
    client: Any = Client(error, offset)
    producer._clients["common"] = client
    assert producer.produce(Batch(records=[record(1)], taken_at=0.0), "x").queued == 1
    ((_, faults),) = producer.poll(0)
    return faults[0].error if faults else None


def test_an_acknowledgement_without_an_offset_is_a_failure() -> None:
    producer = KafkaProducer(OutboxSettings(SOURCE="test"))

    refused = report(producer, None, offset=-1001)

    assert type(refused) is DeliveryFailed
    assert refused.code == "NO_OFFSET"
    assert report(producer, None, offset=0) is None


def test_a_client_that_met_a_fatal_error_breaks_every_record_after_it() -> None:
    producer = KafkaProducer(OutboxSettings(SOURCE="test"))
    fatal = KafkaError(KafkaError.UNKNOWN_PRODUCER_ID, "a gap", fatal=True)
    producer._errors.note(fatal)

    late = report(producer, KafkaError(KafkaError._MSG_TIMED_OUT), offset=-1001)
    producer.close()
    count, error = producer.produce(Batch(records=[record(2)], taken_at=0.0), "x")

    assert isinstance(late, ProducerBroken)
    assert count == 0
    assert isinstance(error, ProducerBroken)
    assert "a gap" in str(error)


def test_an_error_is_logged_once_until_a_record_arrives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    producer = KafkaProducer(OutboxSettings(SOURCE="test"))
    denied = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    late = KafkaError(KafkaError._MSG_TIMED_OUT)

    with caplog.at_level(logging.INFO):
        for error in (denied, late, denied, late):
            producer._errors.note(error)
        report(producer, None, offset=1)
        report(producer, None, offset=2)
        producer.poll(0)
        producer._errors.note(denied)

    logged = [vars(entry).get("code", entry.getMessage()) for entry in caplog.records]
    assert logged == [
        "CLUSTER_AUTHORIZATION_FAILED",
        "_MSG_TIMED_OUT",
        "The producer recovered",
        "CLUSTER_AUTHORIZATION_FAILED",
    ]


def test_an_outage_is_logged_once_for_all_clients(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = OutboxSettings(SOURCE="test", KAFKA={"bootstrap.servers": "kafka-9:1"})
    producers = [KafkaProducer(options) for _ in range(3)]
    unknown = KafkaError(
        KafkaError._RESOLVE,
        "kafka-9:1/bootstrap: Failed to resolve 'kafka-9:1': Name or service not known"
        " (after 1ms in state CONNECT)",
    )

    with caplog.at_level(logging.INFO):
        for producer in producers:
            producer._errors.note(unknown)
            producer._errors.note(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        report(producers[0], None, offset=1)
        producers[0].poll(0)

    assert [entry.getMessage() for entry in caplog.records] == [
        "Kafka at kafka-9:1 unavailable: DNS: unknown host name: Name or "
        "service not known; retrying",
        "Kafka at kafka-9:1 recovered",
    ]


class FarAway:
    """A consumer whose broker needs some time for an answer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.waits: list[float] = []

    def list_topics(self, topic: str, *, timeout: float) -> None:
        self.waits.append(timeout)
        if timeout < self.seconds:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def refusal(server: str) -> KafkaError:
    reason = "Connect to ipv4#1.2.3.4:1 failed: Connection refused"
    return KafkaError(KafkaError._TRANSPORT, f"{server}/bootstrap: {reason}")


@pytest.mark.parametrize("seconds", [0.05, 0.3, 0.9])
def test_a_consumer_without_messages_finds_kafka_back_however_far_away_it_is(
    seconds: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_errors, "PROBE_INTERVAL", 0.0)
    errors = ClientErrors(
        "leader group",
        action="elect",
        config={"bootstrap.servers": f"far-{seconds}:1"},
    )
    for _ in range(2):
        errors.note(refusal(f"far-{seconds}:1"))
    errors.note(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    consumer: Any = FarAway(seconds)

    with caplog.at_level(logging.INFO):
        for _ in range(20):
            errors.probe(consumer, "leaders")

    assert f"Kafka at far-{seconds}:1 recovered" in caplog.text
    assert not errors.is_failing
    # The first one is short, whatever the last outage needed.
    errors.note(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    errors.probe(consumer, "leaders")
    assert consumer.waits[0] == consumer.waits[-1] == 0.1
    assert max(consumer.waits) <= MAX_PROBE_TIMEOUT


def test_errors_from_before_an_answer_are_no_outage_of_their_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_errors, "PROBE_INTERVAL", 0.0)
    config = {"bootstrap.servers": "back:1"}
    errors = ClientErrors("leader group", action="elect", config=config)
    for _ in range(2):
        errors.note(refusal("back:1"))
    errors.note(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    consumer: Any = FarAway(0.0)

    with caplog.at_level(logging.INFO):
        errors.probe(consumer, "leaders")
        # They waited for the next poll.
        for _ in range(2):
            errors.note(refusal("back:1"))
        for _ in range(3):
            errors.probe(consumer, "leaders")

    lost, found = [record.getMessage() for record in caplog.records]
    assert lost.startswith("Kafka at back:1 unavailable: connection refused")
    assert found == "Kafka at back:1 recovered"
    assert not errors.is_failing
