"""The same scenarios on the producer in memory and on the one of a real Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from django_outbox.exceptions import ProducerQueueFull, RecordPoisoned
from django_outbox.message.record import Record

from .clusters import Cluster, KafkaCluster, MemoryCluster, Reports

LEADER = "11111111-1111-4111-8111-111111111111"


@pytest.fixture(params=["memory", "kafka"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """A Kafka of each kind."""
    if request.param == "memory":
        return MemoryCluster()
    return KafkaCluster(request.getfixturevalue("bootstrap_servers"))


@pytest.fixture
def reports() -> Reports:
    return Reports()


def make(topic: str, number: int = 1, **fields: Any) -> Record:
    """A record that differs in what the test is about."""
    record = Record(
        id=number,
        topic=topic,
        key="k",
        value="v",
        header_keys=[],
        header_values=[],
        partition=None,
        message_id="aaaaaaaa-0000-4000-8000-000000000001",
        created_at="1700000000123456",
        cluster_id=0,
        attempts=0,
    )
    return record._replace(**fields)


def test_a_record_settles_without_error_when_it_is_in_the_log(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(), cluster.producer()

    producer.produce(make(topic, key="clé", value="Wert ☂"), LEADER, reports)
    reports.wait(producer, 1)

    assert reports == [(1, None)]
    (message,) = cluster.read(topic, 1)
    assert message.offset == 0
    assert message.key == b"cl\xc3\xa9"
    assert message.value == b"Wert \xe2\x98\x82"


def test_a_record_settles_inside_poll_only(cluster: Cluster, reports: Reports) -> None:
    topic, producer = cluster.create(), cluster.producer()

    producer.produce(make(topic), LEADER, reports)
    cluster.wait_for_arrival(topic)

    assert reports == []
    reports.wait(producer, 1)


def test_headers_are_the_users_then_ours_in_the_contracts_order(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(), cluster.producer(SOURCE="shop")
    record = make(topic, 7, header_keys=["b", "a", "b"], header_values=["1", None, "ü"])

    producer.produce(record, LEADER, reports)
    reports.wait(producer, 1)

    (message,) = cluster.read(topic, 1)
    assert message.headers == [
        ("b", b"1"),
        ("a", None),
        ("b", b"\xc3\xbc"),
        ("outbox-message-id", b"aaaaaaaa-0000-4000-8000-000000000001"),
        ("outbox-id", b"7"),
        ("outbox-source", b"shop"),
        ("outbox-created-at", b"1700000000123456"),
    ]


def test_the_leader_id_is_the_last_header_when_it_is_wanted(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(), cluster.producer(LEADER_HEADER=True)

    producer.produce(make(topic), LEADER, reports)
    reports.wait(producer, 1)

    (message,) = cluster.read(topic, 1)
    assert message.headers[-1] == (
        "outbox-leader-id",
        b"11111111-1111-4111-8111-111111111111",
    )


@pytest.mark.parametrize(
    ("value", "sent"), [(None, None), ("", b""), (b"", b""), (b"\x00\xff", b"\x00\xff")]
)
def test_a_value_is_sent_as_it_was_written(
    cluster: Cluster, reports: Reports, value: str | bytes | None, sent: bytes | None
) -> None:
    topic, producer = cluster.create(), cluster.producer()

    producer.produce(make(topic, value=value), LEADER, reports)
    reports.wait(producer, 1)

    (message,) = cluster.read(topic, 1)
    assert message.value == sent


def test_a_record_goes_to_the_partition_that_its_writer_chose(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(partitions=4), cluster.producer()

    for number in (3, 0, 2):
        producer.produce(make(topic, number, partition=number), LEADER, reports)
    reports.wait(producer, 3)

    messages = cluster.read(topic, 3)
    assert sorted(message.partition for message in messages) == [0, 2, 3]


def test_records_of_one_key_share_a_partition_and_keep_their_order(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(partitions=4), cluster.producer()

    for number, value in enumerate(["one", "two", "three"], start=1):
        producer.produce(make(topic, number, value=value), LEADER, reports)
        reports.wait(producer, number)

    messages = cluster.read(topic, 3)
    assert len({message.partition for message in messages}) == 1
    assert [message.value for message in messages] == [b"one", b"two", b"three"]


def test_a_large_record_is_poison_for_certain_only_when_it_travels_alone(
    cluster: Cluster, reports: Reports
) -> None:
    topic = cluster.create(max_message_bytes=2000)
    producer = cluster.producer(MAX_IN_FLIGHT_PER_KEY=1)

    producer.produce(make(topic, 1, value="x" * 3000), LEADER, reports)
    reports.wait(producer, 1)
    producer.produce(make(topic, 2, value="x" * 3000), LEADER, reports, alone=True)
    reports.wait(producer, 2)

    (_, in_batch), (_, alone) = reports
    assert isinstance(in_batch, RecordPoisoned)
    assert isinstance(alone, RecordPoisoned)
    assert in_batch.code == alone.code == "MSG_SIZE_TOO_LARGE"
    assert not in_batch.is_certain
    assert alone.is_certain


def test_neighbours_that_fail_with_a_large_record_arrive_when_they_travel_alone(
    cluster: Cluster, reports: Reports
) -> None:
    topic = cluster.create(max_message_bytes=2000)
    producer = cluster.producer(
        PRODUCER_KAFKA={"linger.ms": 200}, MAX_IN_FLIGHT_PER_KEY=1
    )
    records = [
        make(topic, 1, key="a"),
        make(topic, 2, key="b", value="x" * 3000),
        make(topic, 3, key="c"),
    ]

    for record in records:
        producer.produce(record, LEADER, reports)
    reports.wait(producer, 3)
    together = dict(reports)
    reports.clear()
    for record in records:
        producer.produce(record, LEADER, reports, alone=True)
    reports.wait(producer, 3)

    for error in together.values():
        assert isinstance(error, RecordPoisoned)
        assert not error.is_certain
    alone = dict(reports)
    assert alone[1] is None
    assert alone[3] is None
    assert isinstance(alone[2], RecordPoisoned)
    assert alone[2].is_certain
    assert {message.key for message in cluster.read(topic, 2)} == {b"a", b"c"}


def test_a_record_for_a_partition_that_does_not_exist_is_poison(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(partitions=2), cluster.producer()
    record = make(topic, 2, partition=2)

    # Found at once when the topic is known, else in the report.
    producer.produce(make(topic, 1), LEADER, reports)
    reports.wait(producer, 1)
    try:
        producer.produce(record, LEADER, reports)
    except RecordPoisoned as refusal:
        reports(record, refusal)
    reports.wait(producer, 2)

    _, error = reports[1]
    assert isinstance(error, RecordPoisoned)
    assert error.code == "_UNKNOWN_PARTITION"
    assert error.is_certain


def test_a_record_for_a_topic_that_does_not_exist_is_poison(
    cluster: Cluster, reports: Reports
) -> None:
    producer = cluster.producer_without_auto_create()

    producer.produce(make("no-such-topic"), LEADER, reports)
    reports.wait(producer, 1)

    ((_, error),) = reports
    assert isinstance(error, RecordPoisoned)
    assert error.code == "UNKNOWN_TOPIC_OR_PART"
    assert error.is_certain


@pytest.mark.parametrize(
    "topic", ["__consumer_offsets", "outbox-leader", "no such topic", ".", ""]
)
def test_a_topic_that_no_message_may_name_is_refused_unsent(
    cluster: Cluster, reports: Reports, topic: str
) -> None:
    with pytest.raises(RecordPoisoned) as caught:
        cluster.producer().produce(make(topic), LEADER, reports)

    assert caught.value.code == "INVALID_TOPIC"
    assert caught.value.is_certain
    assert reports == []


@pytest.mark.parametrize(
    ("names", "values", "code"),
    [
        (["outbox-id"], ["1"], "RESERVED_HEADER"),
        (["a", "Outbox-Id"], ["1", "2"], "RESERVED_HEADER"),
        (["a"], [], "INVALID_HEADERS"),
        ([], ["1"], "INVALID_HEADERS"),
        ([None], ["1"], "INVALID_HEADERS"),
        ([["a"]], [["1"]], "INVALID_HEADERS"),
        (["a", "b"], [["1"], ["2"]], "INVALID_HEADERS"),
    ],
)
def test_headers_that_may_not_be_sent_are_refused_unsent(
    cluster: Cluster, reports: Reports, names: object, values: object, code: str
) -> None:
    record = make("t", header_keys=names, header_values=values)

    with pytest.raises(RecordPoisoned) as caught:
        cluster.producer().produce(record, LEADER, reports)

    assert caught.value.code == code
    assert reports == []


def test_a_full_queue_refuses_the_record_and_keeps_the_others(
    cluster: Cluster, reports: Reports
) -> None:
    producer = cluster.producer_out_of_reach(max_queued=2)
    producer.produce(make("t", 1), LEADER, reports)
    producer.produce(make("t", 2), LEADER, reports)

    with pytest.raises(ProducerQueueFull):
        producer.produce(make("t", 3), LEADER, reports)

    producer.purge()
    assert sorted(number for number, _ in reports) == [1, 2]
    producer.close()


def test_purge_settles_all_that_is_queued_as_failed(
    cluster: Cluster, reports: Reports
) -> None:
    producer = cluster.producer_out_of_reach(max_queued=100)
    for number in range(1, 51):
        producer.produce(make("t", number), LEADER, reports, alone=number % 2 == 0)

    producer.purge()

    assert sorted(number for number, _ in reports) == list(range(1, 51))
    assert {error.code for _, error in reports if error} == {"_PURGE_QUEUE"}
    assert all(error for _, error in reports)
    assert not any(isinstance(error, RecordPoisoned) for _, error in reports)
    producer.close()


def test_a_producer_works_after_a_purge(cluster: Cluster, reports: Reports) -> None:
    topic, producer = cluster.create(), cluster.producer()
    producer.purge()

    producer.produce(make(topic), LEADER, reports)
    reports.wait(producer, 1)

    assert reports == [(1, None)]


def test_close_is_safe_unused_and_twice(cluster: Cluster) -> None:
    producer = cluster.producer()

    producer.close()
    producer.close()

    assert producer.poll(0) == 0


def test_an_error_shows_neither_key_nor_value(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(max_message_bytes=2000), cluster.producer()

    record = make(topic, key="secret-key", value="secret-value" * 300)
    producer.produce(record, LEADER, reports)
    reports.wait(producer, 1)

    ((_, error),) = reports
    assert error is not None
    assert "secret" not in f"{error} {error!r} {error.code}"
