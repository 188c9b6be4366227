"""What a consumer says of itself: whether it does its part, and its figures."""

from __future__ import annotations

import time

import pytest

from django_outbox.consuming.consumer_progress import Progress
from django_outbox.events import (
    ConsumerRead,
    ConsumerReady,
    ConsumerStopped,
    PartitionsChanged,
)
from django_outbox.observability.consumer_metrics import ConsumerMetrics
from django_outbox.observability.consumer_status import ConsumerStatus
from django_outbox.observability.message_times import MessageTimes
from tests.fakes.timeline import Timeline

from .consuming import FakeSource

READING = ConsumerRead(
    name="a",
    group="billing",
    rate=20.0,
    processed=90,
    repeats=5,
    failed=3,
    dead_letters=1,
    lag=40,
)


@pytest.fixture
def status(clock: Timeline) -> ConsumerStatus:
    return ConsumerStatus(patience=60.0, kafka_fault=lambda: "", clock=clock)


def test_it_is_ready_while_it_is_in_its_group(status: ConsumerStatus) -> None:
    assert status.reasons() == ["it is not in its consumer group"]
    status(ConsumerReady(name="a", group="billing"))
    assert status.reasons() == []
    status(ConsumerStopped(name="a", group="billing"))
    assert status.reasons() == ["it is not in its consumer group"]


def test_it_is_not_ready_while_it_is_out_of_its_group(status: ConsumerStatus) -> None:
    """Its lag is unknown then, and the last reading is of no use."""
    registry = ConsumerMetrics(status, group="billing").registry

    def lag() -> float | None:
        return registry.get_sample_value(
            "django_outbox_consumer_lag", {"group": "billing"}
        )

    source = FakeSource()
    progress = Progress(
        [status], name="a", group="billing", interval=5.0, clock=time.monotonic
    )
    progress.changed(source)
    progress.read(source)
    assert (status.reasons(), lag()) == ([], 0)
    source.is_member = False
    progress.changed(source)
    progress.read(source)
    assert (status.reasons(), lag()) == (["it is not in its consumer group"], None)
    source.is_member = True
    progress.changed(source)
    assert (status.reasons(), lag()) == ([], 0)


def test_a_message_that_is_under_way_for_long_is_a_reason(
    status: ConsumerStatus, clock: Timeline
) -> None:
    status(ConsumerReady(name="a", group="billing"))
    clock.advance(60.0)
    assert status.reasons() == []
    clock.advance(1.0)
    (reason,) = status.reasons()
    assert reason.startswith("a message has been under way for 61 s")
    status(READING)
    assert status.reasons() == []


def test_a_kafka_that_is_away_is_a_reason() -> None:
    status = ConsumerStatus(patience=60.0, kafka_fault=lambda: "Kafka is away")
    status(ConsumerReady(name="a", group="billing"))
    assert status.reasons() == ["Kafka is away"]


def test_figures_are_those_of_the_last_reading(
    status: ConsumerStatus, clock: Timeline
) -> None:
    registry = ConsumerMetrics(status, group="billing").registry

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(
            f"django_outbox_consumer_{name}", {"group": "billing", **labels}
        )

    assert value("processed_total") == 0
    assert value("lag") is None
    for event in (
        ConsumerReady(name="a", group="billing"),
        PartitionsChanged(name="a", group="billing", partitions=("t/0", "t/2")),
        READING,
        READING,
    ):
        status(event)
    clock.advance(2.0)
    assert {name: value(name) for name in FIGURES} == FIGURES

    status.times.add(0.004)
    status.times.add(0.2)
    assert value("message_seconds_bucket", le="0.005") == 1
    assert value("message_seconds_bucket", le="+Inf") == 2
    assert value("message_seconds_sum") == pytest.approx(0.204)
    assert value("message_seconds_count") == 2


def test_the_messages_of_a_batch_take_their_mean() -> None:
    times = MessageTimes(bounds=(0.1, 1.0))
    times.add(5.0, messages=10)
    times.add(3.0)
    assert times.cumulated() == ([("0.1", 0.0), ("1.0", 10.0), ("+Inf", 11.0)], 8.0)


FIGURES = {
    "ready": 1.0,
    "lag": 40.0,
    "partitions": 2.0,
    "reading_age_seconds": 2.0,
    "processed_total": 90.0,
    "repeats_total": 5.0,
    "attempts_total": 93.0,
    "failed_attempts_total": 3.0,
    "dead_letters_total": 1.0,
}
