"""Messages that are kept until they are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_outbox import ConsumedMessage
from django_outbox.kafka import delayed_messages
from django_outbox.kafka.delayed_messages import DelayedMessages
from tests.fakes.timeline import Timeline


@pytest.fixture
def delayed(clock: Timeline) -> DelayedMessages:
    return DelayedMessages({"retry": 60.0}, clock=clock)


def message(
    offset: int = 0,
    *,
    age: float | None = 0.0,
    topic: str = "retry",
    partition: int = 0,
) -> ConsumedMessage:
    """A message that was sent so many seconds ago."""
    sent_at = None if age is None else datetime.now(UTC) - timedelta(seconds=age)
    return ConsumedMessage(
        topic=topic, partition=partition, offset=offset, timestamp=sent_at
    )


def test_a_message_is_kept_until_its_delay_is_over(
    delayed: DelayedMessages, clock: Timeline
) -> None:
    young = message(age=20.0)
    assert delayed.keep(young)
    assert delayed.partitions == {("retry", 0)}
    clock.advance(39.0)
    assert delayed.take_due() == []
    clock.advance(1.0)
    assert delayed.take_due() == [young]
    assert delayed.partitions == set()
    assert delayed.take_due() == []


@pytest.mark.parametrize(
    "due", [message(age=61.0), message(age=None), message(topic="orders")]
)
def test_what_is_due_is_not_kept(
    due: ConsumedMessage, delayed: DelayedMessages
) -> None:
    assert not delayed.keep(due)
    assert delayed.partitions == set()


@pytest.mark.parametrize("age", [-3600.0, -1e10])
def test_a_clock_that_is_ahead_delays_nothing_for_longer(
    age: float, delayed: DelayedMessages, clock: Timeline
) -> None:
    assert delayed.keep(message(age=age))
    clock.advance(60.0)
    assert len(delayed.take_due()) == 1


def test_a_pause_is_worth_its_fetch(
    delayed: DelayedMessages, clock: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed_messages, "MIN_WAIT", 30.0)
    assert delayed.keep(message(age=40.0))
    clock.advance(29.0)
    assert delayed.take_due() == []
    clock.advance(1.0)
    assert len(delayed.take_due()) == 1


def test_no_message_overtakes_one_of_its_partition(
    delayed: DelayedMessages, clock: Timeline
) -> None:
    first, second = message(1, age=0.0), message(2, age=61.0)
    other = message(1, age=30.0, partition=1)
    assert all(map(delayed.keep, [first, second, other]))
    clock.advance(31.0)
    assert delayed.take_due() == [other]
    clock.advance(30.0)
    assert delayed.take_due() == [first, second]


def test_the_messages_of_a_lost_partition_are_forgotten(
    delayed: DelayedMessages, clock: Timeline
) -> None:
    delayed.keep(message())
    delayed.keep(message(partition=1))
    delayed.drop(("retry", 0))
    delayed.drop(("retry", 7))
    clock.advance(60.0)
    assert [m.partition for m in delayed.take_due()] == [1]
