"""Topics whose messages are handled later: their partitions wait, on a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from django_outbox import ConsumedMessage
from django_outbox.kafka.consumer import KafkaSource
from django_outbox.kafka.partitions import KafkaPartitions
from django_outbox.settings.options import OutboxSettings
from tests.services import Topics
from tests.waiting import eventually

from .harvesting import poll_until

HOUR = 3600.0


@pytest.fixture
def options(bootstrap_servers: str) -> OutboxSettings:
    return OutboxSettings(
        SESSION_TIMEOUT=1.0,
        HEARTBEAT_TIMEOUT=0.4,
        HEARTBEAT_INTERVAL=0.1,
        KAFKA={"bootstrap.servers": bootstrap_servers},
    )


class Make(Protocol):
    def __call__(
        self, *topics: str, delays: Mapping[str, float] = ..., start: int | None = ...
    ) -> KafkaSource: ...


@pytest.fixture
def member(options: OutboxSettings) -> Iterator[Make]:
    """Makes members of one group."""
    group = f"group-{uuid4()}"
    made: list[KafkaSource] = []

    def make(
        *topics: str,
        delays: Mapping[str, float] | None = None,
        start: int | None = None,
    ) -> KafkaSource:
        source = KafkaSource(
            options,
            group=group,
            topics=topics,
            delays=delays or {},
            start_offsets=lambda at: {} if start is None else dict.fromkeys(at, start),
        )
        made.append(source)
        return source

    yield make
    for source in made:
        source.close()


def send(
    topics: Topics,
    topic: str,
    *texts: str,
    partition: int = 0,
    age: float = 0.0,
) -> None:
    """Write messages that are so many seconds old."""
    producer = Producer({"bootstrap.servers": topics.servers})
    moment = int((time.time() - age) * 1000)
    for text in texts:
        producer.produce(topic, text, "k", partition, timestamp=moment)
    assert producer.flush(15) == 0


def take(source: KafkaSource, count: int) -> list[ConsumedMessage]:
    found: list[ConsumedMessage] = []
    eventually(
        lambda: len(found) == count,
        what=lambda: f"{len(found)} of {count} messages",
        meanwhile=lambda: found.extend(source.poll(count - len(found), 0.2)),
    )
    return found


def texts(messages: Sequence[ConsumedMessage]) -> list[str]:
    return [message.text() for message in messages]


def test_a_partition_waits_and_the_others_go_on(member: Make, topics: Topics) -> None:
    orders, retry = topics.create(), topics.create()
    send(topics, retry, *map(str, range(1000)))
    source = member(orders, retry, delays={retry: HOUR})
    poll_until(lambda: (retry, 0) in source._delayed.partitions, source)
    send(topics, orders, *map(str, range(100)))
    assert texts(take(source, 100)) == [str(number) for number in range(100)]
    poll_until(lambda: (orders, 0) in source._at_end, source)
    # It waits, which is no backlog, and no end either.
    assert source.lag() == 0
    assert not source.is_at_end
    assert (retry, 0) not in source.ends()
    # A pause for another message does not let it go on.
    source.hold(0.3, lambda: False)
    assert source.poll(1, 0.5) == []
    send(topics, orders, "after the hold")
    assert texts(take(source, 1)) == ["after the hold"]
    # The other messages are still in Kafka.
    assert len(source._delayed._kept[retry, 0]) == 1


def test_messages_come_in_order_when_they_are_due(member: Make, topics: Topics) -> None:
    retry = topics.create()
    for number in range(5):
        send(topics, retry, str(number), age=HOUR - 1.0 - number / 3)
    send(topics, retry, "late", age=HOUR - 2.0)
    source = member(retry, delays={retry: HOUR})
    for text in ["0", "1", "2", "3", "4", "late"]:
        (message,) = take(source, 1)
        assert message.text() == text
        assert message.timestamp is not None
        assert datetime.now(UTC) >= message.timestamp + timedelta(seconds=HOUR)
        source.done(message)
    poll_until(lambda: source.is_at_end, source)
    assert source.ends() == {(retry, 0): 6}


def test_who_has_not_waited_to_the_end_leaves_the_message_to_the_next(
    member: Make, topics: Topics
) -> None:
    retry = topics.create()
    send(topics, retry, "due", age=HOUR)
    send(topics, retry, "later")
    first = member(retry, delays={retry: HOUR})
    (message,) = take(first, 1)
    first.done(message)
    poll_until(lambda: first._delayed.partitions, first)
    first.close()
    assert texts(take(member(retry), 1)) == ["later"]


def test_a_waiting_partition_goes_to_another_member_and_comes_back(
    member: Make, topics: Topics
) -> None:
    """It must not stay paused."""
    retry = topics.create(partitions=2)
    first, second = (member(retry, delays={retry: HOUR}) for _ in range(2))
    poll_until(lambda: len(first.partitions) == 2, first)
    for partition in range(2):
        send(topics, retry, str(partition), partition=partition)
    poll_until(lambda: len(first._delayed.partitions) == 2, first)
    share(first, second)
    assert len(first._delayed.partitions) == 1
    # An hour later.
    first._delayed._clock = lambda: time.monotonic() + HOUR
    first._delayed._delays = {}
    second.close()
    assert sorted(texts(take(first, 2))) == ["0", "1"]


def test_a_partition_that_goes_during_a_hold_comes_back(
    member: Make, topics: Topics
) -> None:
    topic = topics.create(partitions=2)
    first, second = member(topic), member(topic)
    poll_until(lambda: len(first.partitions) == 2, first)

    def has_gone() -> bool:
        second.poll(1, 0.05)
        return len(second.partitions) == 1

    first.hold(30.0, has_gone)
    assert len(first.partitions) == 1
    second.close()
    poll_until(lambda: len(first.partitions) == 2, first)
    for partition in range(2):
        send(topics, topic, str(partition), partition=partition)
    assert sorted(texts(take(first, 2))) == ["0", "1"]


def share(first: KafkaSource, second: KafkaSource) -> None:
    eventually(
        lambda: len(first.partitions) == len(second.partitions) == 1,
        meanwhile=lambda: (first.poll(1, 0.05), second.poll(1, 0.05)),
    )


def test_a_start_that_was_given_is_kept_without_a_message(
    member: Make, topics: Topics
) -> None:
    topic = topics.create()
    send(topics, topic, "before")
    first = member(topic, start=1)
    poll_until(lambda: first.is_at_end, first)
    first.close()
    send(topics, topic, "after")
    assert texts(take(member(topic), 1)) == ["after"]


def test_the_first_messages_after_a_moment_are_found(
    topics: Topics, options: OutboxSettings
) -> None:
    topic = topics.create(partitions=3)
    send(topics, topic, "old", "old", age=HOUR)
    send(topics, topic, "new", "new")
    send(topics, topic, "old", partition=1, age=HOUR)
    asked = [(topic, 0), (topic, 1), (topic, 2), (f"{topic}.missing", 0)]
    partitions = KafkaPartitions(options)

    def starts(moment: datetime) -> dict[tuple[str, int], int]:
        return partitions.at_time(asked, moment)

    half_an_hour_ago = datetime.now(UTC) - timedelta(minutes=30)
    assert starts(half_an_hour_ago) == {(topic, 0): 2, (topic, 1): 1, (topic, 2): 0}
    long_ago = datetime(1960, 1, 1, tzinfo=UTC)
    assert starts(long_ago) == {(topic, 0): 0, (topic, 1): 0, (topic, 2): 0}
    assert partitions.at_time([], long_ago) == {}
