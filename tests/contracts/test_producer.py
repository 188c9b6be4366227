"""The same scenarios on the producer in memory and on the one of a real Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from django_outbox.exceptions import ProducerBroken, RecordPoisoned
from django_outbox.message.record import Record
from django_outbox.relay.batch import Batch
from tests.waiting import eventually

from .clusters import LEADER, Cluster, KafkaCluster, MemoryCluster, Reports


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

    reports.send(producer, make(topic, key="clé", value="Wert ☂"))
    reports.wait(producer, 1)

    assert reports == [(1, None)]
    (message,) = cluster.read(topic, 1)
    assert message.offset == 0
    assert message.key == b"cl\xc3\xa9"
    assert message.value == b"Wert \xe2\x98\x82"


def test_a_record_settles_inside_poll_only(cluster: Cluster, reports: Reports) -> None:
    topic, producer = cluster.create(), cluster.producer()

    reports.send(producer, make(topic))
    cluster.wait_for_arrival(topic)

    assert producer.delivered == 0
    reports.wait(producer, 1)
    assert producer.delivered == 1


def test_headers_are_the_users_then_ours_in_the_contracts_order(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(), cluster.producer(SOURCE="shop")
    record = make(topic, 7, header_keys=["b", "a", "b"], header_values=["1", None, "ü"])

    reports.send(producer, record)
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

    reports.send(producer, make(topic))
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

    reports.send(producer, make(topic, value=value))
    reports.wait(producer, 1)

    (message,) = cluster.read(topic, 1)
    assert message.value == sent


def test_a_record_goes_to_the_partition_that_its_writer_chose(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(partitions=4), cluster.producer()

    reports.send(producer, *(make(topic, n, partition=n) for n in (3, 0, 2)))
    reports.wait(producer, 3)

    messages = cluster.read(topic, 3)
    assert sorted(message.partition for message in messages) == [0, 2, 3]


def test_records_of_one_key_share_a_partition_and_keep_their_order(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(partitions=4), cluster.producer()

    values = ["one", "two", "three", "four"]
    records = [make(topic, n, value=value) for n, value in enumerate(values)]

    reports.send(producer, *records[:3])
    reports.send(producer, records[3])
    reports.wait(producer, 4)

    messages = cluster.read(topic, 4)
    assert len({message.partition for message in messages}) == 1
    assert [message.value for message in messages] == [
        value.encode() for value in values
    ]


def test_a_large_record_is_poison_for_certain_only_when_it_travels_alone(
    cluster: Cluster, reports: Reports
) -> None:
    topic = cluster.create(max_message_bytes=2000)
    producer = cluster.producer(MAX_IN_FLIGHT_PER_KEY=1)

    reports.send(producer, make(topic, 1, value="x" * 3000))
    reports.wait(producer, 1)
    reports.send(producer, make(topic, 2, value="x" * 3000), apart=True)
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

    reports.send(producer, *records)
    reports.wait(producer, 3)
    together = dict(reports)
    reports.clear()
    reports.send(producer, *records, apart=True)
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


def test_a_refused_record_of_a_batch_is_found_among_others(
    cluster: Cluster, reports: Reports
) -> None:
    topic, other = cluster.create(max_message_bytes=2000), cluster.create()
    large = "x" * 3000
    records = [
        make(other, 1, key="k", value=large),
        make(topic, 2, key="k", value=large[:1000]),
        make(topic, 3, key="k", value=large),
        make(topic, 4, key="l", value=None),
        make(topic, 5, key="l", value=b""),
    ]
    producer = cluster.producer()

    reports.send(producer, *records, apart=True)
    reports.wait(producer, 5)

    assert [number for number, error in reports if error] == [3]
    assert len(cluster.read(topic, 3)) == 3


def test_of_two_equal_messages_the_later_one_is_the_refused_one(
    cluster: Cluster, reports: Reports
) -> None:
    """The order of a partition tells them apart: their headers differ here."""
    topic, producer = cluster.create(max_message_bytes=2000), cluster.producer()
    large = make(topic, 2, header_keys=["a"], header_values=["x" * 3000])

    reports.send(producer, make(topic, 1), large, apart=True)
    reports.wait(producer, 2)

    assert [number for number, error in reports if error] == [2]


@pytest.mark.parametrize("partitions", [(0, 7), (7, 0)])
def test_of_two_equal_messages_their_partitions_tell_which_is_refused(
    cluster: Cluster, reports: Reports, partitions: tuple[int, int]
) -> None:
    topic, producer = cluster.create(partitions=2), cluster.producer()

    accepted = reports.send(
        producer, *(make(topic, n, partition=n) for n in partitions)
    )
    reports.wait(producer, accepted.queued)

    refused = [number for number, error in reports if error]
    if accepted.error:
        # It knew by then how many partitions the topic has.
        refused.append(partitions[accepted.queued])
    assert refused == [7]


def test_nothing_goes_out_behind_a_refusal(cluster: Cluster, reports: Reports) -> None:
    topic, producer = cluster.create(max_message_bytes=2000), cluster.producer()
    reports.send(producer, make(topic, 1))
    reports.wait(producer, 1)

    reports.send(producer, make(topic, 2, value="x" * 3000))
    reports.wait(producer, 2)
    reports.send(producer, make(topic, 3))
    reports.take(producer.poll(0.1))
    reports.take(producer.purge())

    outcomes = dict(reports)
    refusal = outcomes[2]
    assert isinstance(refusal, RecordPoisoned)
    assert not refusal.is_certain
    assert outcomes.get(3, refusal) is not None
    count, error = reports.send(producer, make(topic, 4))
    assert count == 0
    assert isinstance(error, ProducerBroken)
    assert len(cluster.read(topic, 1)) == 1


def test_a_refusal_ends_the_batches_behind_it(
    cluster: Cluster, reports: Reports
) -> None:
    """Nothing more of them will go out, so nobody should wait for them."""
    topic = cluster.create(max_message_bytes=2000)
    producer = cluster.producer(PRODUCER_KAFKA={"batch.num.messages": 1})
    reports.send(producer, make(topic, 1))
    reports.wait(producer, 1)

    large = make(topic, 2, value="x" * 3000)
    first, _ = reports.send(producer, large, make(topic, 3))
    second, _ = reports.send(producer, make(topic, 4))
    # After a refusal that has arrived already, it accepts no record.
    refused = [2, 3, 4][: first + second]
    eventually(
        lambda: len(reports) == 1 + len(refused),
        timeout=10,
        meanwhile=lambda: reports.take(producer.poll(0.05)),
    )

    assert [number for number, error in reports if error] == refused


def test_a_topic_is_proven_when_each_partition_has_acknowledged_a_record(
    cluster: Cluster, reports: Reports
) -> None:
    topic, other = cluster.create(partitions=2), cluster.create(partitions=2)
    producer = cluster.producer()

    reports.send(producer, make(topic, 1, partition=1), make(topic, 2, partition=1))
    reports.send(producer, make(other, 3, partition=0))
    reports.wait(producer, 3)
    assert producer.proven_topics == set()

    reports.send(producer, make(topic, 4, partition=0))
    reports.wait(producer, 4)
    assert producer.proven_topics == {topic}

    reports.send(producer, make(other, 5, partition=1), apart=True)
    reports.wait(producer, 5)
    assert producer.proven_topics == {topic}, "another client has sent it"


def test_a_key_is_proven_once_by_each_record_that_proves(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(), cluster.producer()

    records = [make(topic, 1, key="a"), make(topic, 2, key="")]
    proving = Batch(records=records, taken_at=0.0, proves_keys=True)
    apart = Batch(records=[make(topic, 3)], taken_at=0.0, is_apart=True)
    producer.produce(proving, LEADER)
    producer.produce(apart, LEADER)
    reports.wait(producer, 3)

    assert sorted(proving.proven) == [(topic, ""), (topic, "a")]
    assert apart.proven == []


def test_a_record_for_a_partition_that_does_not_exist_is_poison(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(partitions=2), cluster.producer()
    record = make(topic, 2, partition=2)

    # Found at once when the topic is known, else in the report.
    reports.send(producer, make(topic, 1))
    reports.wait(producer, 1)
    accepted = reports.send(producer, record)
    if accepted.error is not None:
        reports.append((record.id, accepted.error))
    reports.wait(producer, 2)

    _, error = reports[1]
    assert isinstance(error, RecordPoisoned)
    assert error.code == "_UNKNOWN_PARTITION"
    assert error.is_certain


def test_a_record_for_a_topic_that_does_not_exist_is_poison(
    cluster: Cluster, reports: Reports
) -> None:
    producer = cluster.producer_without_auto_create()

    reports.send(producer, make("no-such-topic"))
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
    producer = cluster.producer()

    count, error = reports.send(producer, make(topic))

    assert count == 0
    assert isinstance(error, RecordPoisoned)
    assert error.code == "INVALID_TOPIC"
    assert error.is_certain


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
    producer = cluster.producer()
    record = make("t", header_keys=names, header_values=values)

    count, error = reports.send(producer, record)

    assert count == 0
    assert isinstance(error, RecordPoisoned)
    assert error.code == code


def test_a_batch_is_queued_up_to_the_record_that_is_refused_unsent(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(), cluster.producer()
    wrong = make(topic, 3, header_keys=["outbox-id"], header_values=["1"])

    count, error = reports.send(
        producer, make(topic, 1), make(topic, 2), wrong, make(topic, 4)
    )
    reports.wait(producer, 2)

    assert count == 2
    assert isinstance(error, RecordPoisoned)
    assert reports == [(1, None), (2, None)]
    assert len(cluster.read(topic, 2)) == 2


def test_a_full_queue_accepts_a_part_and_keeps_it(
    cluster: Cluster, reports: Reports
) -> None:
    producer = cluster.producer_out_of_reach(max_queued=2)

    assert reports.send(producer, *(make("t", n) for n in (1, 2, 3, 4))) == (2, None)
    assert reports.send(producer, make("t", 3)) == (0, None)

    reports.take(producer.purge())
    assert sorted(number for number, _ in reports) == [1, 2]
    producer.close()


def test_purge_settles_all_that_is_queued_as_failed(
    cluster: Cluster, reports: Reports
) -> None:
    producer = cluster.producer_out_of_reach(max_queued=100)
    reports.send(producer, *(make("t", number) for number in range(1, 31)))
    reports.send(producer, *(make("t", number) for number in range(31, 51)), apart=True)

    reports.take(producer.purge())

    assert producer.delivered == 0
    assert sorted(number for number, _ in reports) == list(range(1, 51))
    assert {error.code for _, error in reports if error} == {"_PURGE_QUEUE"}
    assert all(error for _, error in reports)
    assert not any(isinstance(error, RecordPoisoned) for _, error in reports)
    producer.close()


def test_a_producer_works_after_a_purge(cluster: Cluster, reports: Reports) -> None:
    topic, producer = cluster.create(), cluster.producer()
    assert list(producer.purge()) == []

    reports.send(producer, make(topic))
    reports.wait(producer, 1)

    assert reports == [(1, None)]


def test_close_is_safe_unused_and_twice(cluster: Cluster) -> None:
    producer = cluster.producer()

    producer.close()
    producer.close()

    assert list(producer.poll(0)) == []


def test_an_error_shows_neither_key_nor_value(
    cluster: Cluster, reports: Reports
) -> None:
    topic, producer = cluster.create(max_message_bytes=2000), cluster.producer()

    record = make(topic, key="secret-key", value="secret-value" * 300)
    reports.send(producer, record)
    reports.wait(producer, 1)

    ((_, error),) = reports
    assert error is not None
    assert "secret" not in f"{error} {error!r} {error.code}"
