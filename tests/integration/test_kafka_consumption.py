"""The adapters of consumers on a real Kafka."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import KafkaError as DriverError
from confluent_kafka.admin import AdminClient

from django_outbox import ConsumedMessage
from django_outbox.exceptions import (
    ConfigurationError,
    DeliveryFailed,
    KafkaError,
    KafkaUnavailable,
    RecordPoisoned,
    StaleOffset,
)
from django_outbox.kafka import consumer as consumer_module
from django_outbox.kafka import consumer_output
from django_outbox.kafka.consumer import KafkaSource
from django_outbox.kafka.consumer_output import KafkaDeadLetters, KafkaTransforms
from django_outbox.message.incoming import BEGINNING, OutgoingMessage
from django_outbox.settings.options import OutboxSettings
from tests.services import Topics
from tests.waiting import eventually

from .harvesting import has_assigned, poll_until
from .mockbroker import INIT_PRODUCER_ID, MockBroker, produce_with_header_name


@pytest.fixture
def options(bootstrap_servers: str) -> OutboxSettings:
    return OutboxSettings(
        SESSION_TIMEOUT=1.0,
        HEARTBEAT_TIMEOUT=0.4,
        HEARTBEAT_INTERVAL=0.1,
        DELIVERY_TIMEOUT=1.0,
        KAFKA={"bootstrap.servers": bootstrap_servers},
    )


@pytest.fixture
def sources(options: OutboxSettings, topic: str) -> Iterator[Callable[..., Any]]:
    """Makes members of one group."""
    group = f"group-{uuid4()}"
    made: list[KafkaSource] = []

    def make(**arguments: Any) -> KafkaSource:
        made.append(KafkaSource(options, group=group, topics=[topic], **arguments))
        return made[-1]

    yield make
    for source in made:
        source.close()


def send(bootstrap_servers: str, topic: str, count: int, *, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(first, first + count):
        producer.produce(topic, str(number), "k", headers=[("a", b"1"), ("a", None)])
    assert producer.flush(15) == 0


def take(source: KafkaSource, count: int, *, limit: int = 500) -> list[ConsumedMessage]:
    found: list[ConsumedMessage] = []
    eventually(
        lambda: len(found) == count,
        what=lambda: f"{len(found)} of {count} messages",
        meanwhile=lambda: found.extend(
            source.poll(min(limit, count - len(found)), 0.2)
        ),
    )
    return found


def texts(messages: list[ConsumedMessage]) -> list[str]:
    return [message.text() for message in messages]


def test_a_hold_leaves_no_gap_and_repeats_nothing(
    sources: Any, topic: str, bootstrap_servers: str
) -> None:
    """What the client had fetched before the hold comes after it."""
    send(bootstrap_servers, topic, 1000)
    source = sources()
    found = take(source, 10)
    for _ in range(3):
        source.hold(0.2, lambda: False)
        assert source._buffer == []
        found += take(source, 10)
    found += take(source, 960)
    assert texts(found) == [str(number) for number in range(1000)]
    poll_until(lambda: source.is_at_end, source)
    assert source.lag() == 0


def test_a_successor_goes_on_behind_what_is_done(
    sources: Any, topic: str, bootstrap_servers: str
) -> None:
    send(bootstrap_servers, topic, 10)
    first = sources()
    for message in take(first, 6):
        if message.offset < 4:
            first.done(message)
    first.close()
    second = sources()
    assert texts(take(second, 6)) == ["4", "5", "6", "7", "8", "9"]


def test_the_lag_is_of_messages_that_the_group_has_not_read(
    sources: Any, topic: str, bootstrap_servers: str
) -> None:
    send(bootstrap_servers, topic, 10)
    first = sources()
    for message in take(first, 4):
        first.done(message)
    first.close()
    second = sources()
    eventually(lambda: second.partitions, what="a partition", meanwhile=second.serve)
    client, at = second._connected(), TopicPartition(topic, 0)
    eventually(lambda: client.get_watermark_offsets(at, cached=True)[1] == 10)
    assert second.lag() <= 6, "the whole log is not its backlog"
    take(second, 5)
    assert second.lag() == 1
    take(second, 1)
    poll_until(lambda: second.is_at_end, second)
    assert second.lag() == 0
    send(bootstrap_servers, topic, 3)
    eventually(lambda: second.lag() == 3, what="the lag of what it has not polled")


def test_a_message_is_read_as_it_was_sent(
    sources: Any, topic: str, bootstrap_servers: str
) -> None:
    send(bootstrap_servers, topic, 1)
    (message,) = take(sources(), 1)
    assert (message.topic, message.partition, message.offset) == (topic, 0, 0)
    assert (message.key, message.value) == (b"k", b"0")
    assert message.headers == (("a", b"1"), ("a", None))
    assert message.timestamp is not None
    assert abs(message.timestamp.timestamp() - time.time()) < 300


def test_headers_whose_names_are_no_text_stop_nobody(
    sources: Any,
    topic: str,
    bootstrap_servers: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The driver fails on them; often, since Python soon stops to check such calls."""
    for number in range(30):
        name = b"\xff\xfe"
        produce_with_header_name(bootstrap_servers, topic, b"forged", name)
        send(bootstrap_servers, topic, 1, first=number)
    messages = take(sources(), 60)
    assert {m.headers for m in messages[::2]} == {()}
    assert {m.headers for m in messages[1::2]} == {(("a", b"1"), ("a", None))}
    assert texts(messages[1::2]) == [str(number) for number in range(30)]
    assert f"Cannot read the headers of message {topic}/0 at offset 0" in caplog.text


def test_stored_offsets_win_over_those_of_the_group(
    sources: Any, topic: str, bootstrap_servers: str
) -> None:
    send(bootstrap_servers, topic, 10)
    first = sources(start_offsets=lambda _: {(topic, 0): 7})
    (message,) = take(first, 1)
    assert message.offset == 7
    first.done(message)
    first.close()
    again = sources(start_offsets=lambda p: dict.fromkeys(p, BEGINNING))
    assert take(again, 1)[0].offset == 0


def test_a_rewound_group_stays_rewound_when_no_commit_follows(
    sources: Any, topic: str, bootstrap_servers: str
) -> None:
    """The member dies, or loses the partition, before its first commit."""
    send(bootstrap_servers, topic, 10)
    first = sources(start_offsets=lambda _: {(topic, 0): 7})
    assert take(first, 1)[0].offset == 7
    first.close()
    rewound = sources(start_offsets=lambda p: dict.fromkeys(p, BEGINNING))
    assert take(rewound, 3)[-1].offset == 2
    rewound.close()
    assert take(sources(), 1)[0].offset == 0


def test_a_partition_without_a_beginning_keeps_no_other_from_its_own(
    topics: Topics,
    options: OutboxSettings,
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def first(_: Consumer, at: TopicPartition, *, timeout: float) -> tuple[int, int]:
        if at.partition == 0:
            raise KafkaException(DriverError(DriverError.LEADER_NOT_AVAILABLE))
        return 0, 0

    monkeypatch.setattr(consumer_module, "first_and_end", first)
    shared, group = topics.create(partitions=2), f"group-{uuid4()}"
    source = KafkaSource(
        options,
        group=group,
        topics=[shared],
        start_offsets=lambda p: dict.fromkeys(p, BEGINNING),
    )
    poll_until(lambda: len(source.partitions) == 2, source)
    source.close()
    reader = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    asked = [TopicPartition(shared, number) for number in range(2)]
    offsets = [at.offset for at in reader.committed(asked, timeout=15)]
    reader.close()
    assert offsets == [OFFSET_INVALID, 0]


def test_a_member_that_loses_its_partitions_drops_what_it_holds(
    sources: Any, topics: Topics, options: OutboxSettings, bootstrap_servers: str
) -> None:
    shared = topics.create(partitions=2)
    group = f"group-{uuid4()}"
    first = KafkaSource(options, group=group, topics=[shared])
    second = KafkaSource(options, group=group, topics=[shared])
    try:
        poll_until(lambda: len(first.partitions) == 2, first)
        eventually(
            lambda: len(first.partitions) == len(second.partitions) == 1,
            meanwhile=lambda: (first.poll(1, 0.05), second.poll(1, 0.05)),
        )
        (mine,) = first.partitions
        (theirs,) = second.partitions
        assert {mine, theirs} == {(shared, 0), (shared, 1)}
        assert first.owns(ConsumedMessage(topic=shared, partition=mine[1]))
        assert not first.owns(ConsumedMessage(topic=shared, partition=theirs[1]))
    finally:
        first.close()
        second.close()


def test_who_has_just_joined_others_is_not_at_the_end(
    sources: Any, topics: Topics, options: OutboxSettings, bootstrap_servers: str
) -> None:
    """It gets no partition at first, and then one that somebody has given up."""
    shared = topics.create(partitions=2)
    send(bootstrap_servers, shared, 10)
    group = f"group-{uuid4()}"
    first = KafkaSource(options, group=group, topics=[shared])
    second = KafkaSource(options, group=group, topics=[shared])
    try:
        poll_until(lambda: len(first.partitions) == 2, first)
        poll_until(lambda: second.is_member, second)
        assert second.partitions == ()
        assert not second.is_at_end
        eventually(
            lambda: first.is_at_end and second.is_at_end,
            meanwhile=lambda: (first.poll(10, 0.05), second.poll(10, 0.05)),
        )
        assert len(first.partitions) == len(second.partitions) == 1
    finally:
        first.close()
        second.close()


def test_who_gets_no_partition_is_at_the_end_after_a_while(
    sources: Any, topic: str
) -> None:
    first, second = sources(), sources()
    poll_until(lambda: first.partitions, first)
    poll_until(lambda: second.is_member, second)
    poll_until(lambda: second.is_at_end, second)
    assert second.partitions == ()


def letter(topic: str, value: str) -> OutgoingMessage:
    return OutgoingMessage(topic, "k", value, [("a", "1")])


def test_a_transaction_carries_output_offsets_and_its_token(
    sources: Any, topics: Topics, options: OutboxSettings, topic: str
) -> None:
    output = topics.create()
    source = sources()
    poll_until(lambda: source.partitions, source)
    transactions = KafkaTransforms(
        options, transactional_id=f"t-{uuid4()}", member=source
    )
    transactions.send([letter(output, "a")], {(topic, 0): 3}, "the token")
    assert source.token((topic, 0)) == "the token"
    (message,) = topics.read(output, at_least=1)
    assert message.value() == b"a"
    transactions.send([], {(topic, 0): 4}, "another")
    assert source.token((topic, 0)) == "another"


def test_what_comes_while_it_closes_is_given_back(
    bootstrap_servers: str, options: OutboxSettings, topic: str
) -> None:
    """A call to the consumer at that moment might never return."""
    group, asked = f"group-{uuid4()}", []
    source = KafkaSource(
        options,
        group=group,
        topics=[topic],
        start_offsets=lambda p: asked.append(p) or {},
    )
    source.serve()
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    eventually(lambda: has_assigned(admin, group))
    source.close()
    assert asked == []
    assert source.partitions == ()


def test_a_member_whose_name_another_one_takes_says_so(
    topics: Topics, options: OutboxSettings, topic: str
) -> None:
    """It never comes back, and would look like one without partitions."""
    static = replace(options, CONSUMER_KAFKA={"group.instance.id": "the-same"})
    group = f"group-{uuid4()}"
    first, second = (KafkaSource(static, group=group, topics=[topic]) for _ in "ab")
    try:
        poll_until(lambda: first.partitions, first)

        def poll() -> None:
            second.poll(1, 0.05)
            first.poll(1, 0.05)

        with pytest.raises(ConfigurationError, match=r"'group\.instance\.id'"):
            eventually(lambda: False, meanwhile=poll)
    finally:
        first.close()
        second.close()


def test_a_transaction_of_a_deposed_member_is_refused(
    topics: Topics, options: OutboxSettings, topic: str
) -> None:
    """It hung, the group went on without it, and it does not know that yet."""
    output, group = topics.create(), f"group-{uuid4()}"
    hasty = replace(options, CONSUMER_KAFKA={"max.poll.interval.ms": 1000})
    source = KafkaSource(hasty, group=group, topics=[topic])
    successor = KafkaSource(options, group=group, topics=[topic])
    transactions = KafkaTransforms(
        options, transactional_id=f"t-{uuid4()}", member=source
    )
    try:
        poll_until(lambda: source.partitions, source)
        transactions.renew()
        poll_until(lambda: successor.partitions, successor)
        with pytest.raises(KafkaError):
            transactions.send([letter(output, "a")], {(topic, 0): 3}, "the token")
        transactions.renew()
        assert topics.read(output) == []
        assert successor.token((topic, 0)) != "the token"
    finally:
        source.close()
        successor.close()


def test_a_transaction_of_nobody_is_refused(
    sources: Any, topics: Topics, options: OutboxSettings, topic: str
) -> None:
    """The broker would take metadata without a member, and fence nothing."""
    transactions = KafkaTransforms(
        options, transactional_id=f"t-{uuid4()}", member=sources()
    )
    output = topics.create()
    with pytest.raises(KafkaUnavailable):
        transactions.send([letter(output, "a")], {(topic, 0): 3}, "the token")
    transactions.renew()
    assert topics.read(output) == []


def test_a_partition_that_must_not_begin_anywhere_ends_the_consumer(
    topic: str, options: OutboxSettings
) -> None:
    """The driver tells of it once, and reads no further."""
    strict = replace(options, CONSUMER_KAFKA={"auto.offset.reset": "error"})
    source = KafkaSource(strict, group=f"group-{uuid4()}", topics=[topic])
    try:
        with pytest.raises(StaleOffset, match=f"^{topic}/0: .* --from-beginning"):
            eventually(lambda: source.poll(1, 0.1), what="an end")
    finally:
        source.close()


def test_a_letter_that_is_too_large_is_poison(
    topics: Topics, options: OutboxSettings
) -> None:
    small = topics.create(config={"max.message.bytes": "1000"})
    # A broker that was never written to takes its time.
    dead_letters = KafkaDeadLetters(replace(options, DELIVERY_TIMEOUT=30.0))
    with pytest.raises(RecordPoisoned):
        # More than fits, compressed too.
        dead_letters.send(letter(small, os.urandom(2000).hex()))
    dead_letters.send(letter(small, "y"))
    (message,) = topics.read(small, at_least=1)
    assert message.value() == b"y"
    assert message.headers() == [("a", b"1")]


def clients() -> int:
    """How many clients of Kafka this process has: each has such a thread."""
    threads = Path("/proc/self/task").glob("*/comm")
    return sum(thread.read_text("ascii") == "rdk:main\n" for thread in threads)


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads by their names")
def test_clients_without_work_are_closed(
    topics: Topics,
    options: OutboxSettings,
    sources: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What they would tell of connections fills the memory until they are served."""
    # A broker that was never written to takes its time.
    options = replace(options, DELIVERY_TIMEOUT=30.0)
    topic, source = topics.create(), sources()
    dead_letters = KafkaDeadLetters(options)
    transforms = KafkaTransforms(options, transactional_id="t", member=source)
    before = clients()
    dead_letters.send(letter(topic, "a"))
    transforms.renew()
    dead_letters.rest()
    transforms.rest()
    assert clients() == before + 2

    monkeypatch.setattr(consumer_output, "IDLE_TIMEOUT", 0.0)
    dead_letters.rest()
    transforms.rest()

    assert clients() == before
    dead_letters.send(letter(topic, "b"))
    assert len(topics.read(topic, at_least=2)) == 2


def test_a_letter_waits_for_a_broker_no_longer_than_it_may() -> None:
    options = OutboxSettings(
        DELIVERY_TIMEOUT=0.3, KAFKA={"bootstrap.servers": "127.0.0.1:1"}
    )
    with pytest.raises((DeliveryFailed, KafkaError)):
        KafkaDeadLetters(options).send(letter("t", "a"))


def test_a_letter_waits_for_a_right_that_is_missing() -> None:
    """Who may write to no topic gets no producer id, which the driver calls fatal."""
    broker = MockBroker()
    options = OutboxSettings(KAFKA={"bootstrap.servers": broker.servers})
    dead_letters = KafkaDeadLetters(options)
    broker.refuse(INIT_PRODUCER_ID, DriverError.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaUnavailable, match="authorization"):
        dead_letters.send(letter("t", "a"))
    dead_letters.send(letter("t", "a"))
