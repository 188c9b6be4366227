"""What a member of a group returns while its partitions come and go, on a fake."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from django_outbox.kafka import consumer as module
from django_outbox.kafka.consumer import KafkaSource
from django_outbox.settings.options import OutboxSettings

PARTITION = TopicPartition("orders", 0)


class FakeMessage:
    """A message of the one partition."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return PARTITION.topic

    def partition(self) -> int:
        return PARTITION.partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> None:
        return None

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> list[tuple[str, bytes]]:
        return []

    def timestamp(self) -> tuple[int, int]:
        return (0, 0)


class FakeConsumer:
    """A client to which happens what a test wants, in this order."""

    def __init__(self, config: Any) -> None:
        self.to_come: deque[FakeMessage | Callable[[], None]] = deque()

    def subscribe(self, topics: Sequence[str], **callbacks: Any) -> None:
        self._callbacks = callbacks

    def assign(self) -> None:
        self.to_come.append(lambda: self._callbacks["on_assign"](self, [PARTITION]))

    def lose(self) -> None:
        self.to_come.append(lambda: self._callbacks["on_lost"](self, [PARTITION]))

    def poll(self, timeout: float) -> FakeMessage | None:
        """Serve callbacks until there is a message, as the client does."""
        while self.to_come:
            next_one = self.to_come.popleft()
            if isinstance(next_one, FakeMessage):
                return next_one
            next_one()
        return None

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """There is nothing to fetch."""

    incremental_unassign = resume = incremental_assign

    def memberid(self) -> str:
        return "member"


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> KafkaSource:
    """Return a member that has the partition."""
    monkeypatch.setattr(module, "Consumer", FakeConsumer)
    options = OutboxSettings(KAFKA={"bootstrap.servers": "scripted:1"})
    source = KafkaSource(options, group="billing", topics=["orders"])
    client_of(source).assign()
    assert source.poll(1, 0.0) == []
    return source


def client_of(source: KafkaSource) -> FakeConsumer:
    client: Any = source._connected()
    return client


@pytest.mark.parametrize("limit", [1, 5])
def test_what_comes_when_a_partition_is_back_is_ours(
    source: KafkaSource, limit: int
) -> None:
    """A process that was suspended loses it, gets it and reads, all in one poll."""
    client = client_of(source)
    client.lose()
    client.assign()
    client.to_come.append(FakeMessage(4))
    (message,) = source.poll(limit, 0.0)

    assert source.owns(message)
    source.done(message)
    assert source._done == {("orders", 0): 5}


def test_what_came_before_a_partition_was_lost_is_not_ours(
    source: KafkaSource,
) -> None:
    """It is read again, by this process or by another."""
    client = client_of(source)
    client.to_come += [FakeMessage(4), FakeMessage(5)]
    first, second = source.poll(2, 0.0)
    source.done(first)
    client.lose()
    client.assign()
    client.to_come.append(FakeMessage(4))
    source.serve()

    assert not source.owns(second)
    source.done(second)
    assert source._done == {}
    (again,) = source.poll(1, 0.0)
    assert again.offset == 4
    assert source.owns(again)


def test_the_client_is_polled_where_enough_messages_wait(source: KafkaSource) -> None:
    """Slow handlers would cost the partitions otherwise."""
    client = client_of(source)
    client.to_come += [FakeMessage(4), FakeMessage(5), FakeMessage(6)]
    source.serve()
    source.serve()
    (first,) = source.poll(1, 0.0)
    assert not client.to_come
    (second,) = source.poll(1, 0.0)
    assert (first.offset, second.offset) == (4, 5)
    client.lose()
    assert source.poll(1, 0.0) == []
    assert source.partitions == ()
