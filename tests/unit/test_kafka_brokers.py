"""Which broker fails is logged once for each cause, and its recovery too."""

from __future__ import annotations

import itertools
import logging

import pytest

from django_outbox.kafka.brokers import (
    FIRST_LOG_INTERVAL,
    MAX_LOG_INTERVAL,
    MAX_LOGGED_RECOVERIES,
    RECOVERED_AFTER,
    Brokers,
)
from django_outbox.kafka.causes import BrokerFailure
from tests.fakes.timeline import Timeline

REFUSED = BrokerFailure("kafka-1:9092", "connection refused", 2)
UNTRUSTED = BrokerFailure("kafka-1:9092", "TLS: not trusted")
OTHER = BrokerFailure("kafka-2:9092", "DNS: not known")


@pytest.fixture
def brokers(clock: Timeline) -> Brokers:
    return Brokers("kafka-1:9092,kafka-2:9092", clock=clock)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "django_outbox.kafka.brokers")
    return caplog


def fail(brokers: Brokers, failure: BrokerFailure, reporter: str = "log") -> None:
    brokers.failed(failure, reporter=reporter)


def test_a_cause_is_told_once_with_the_address(
    brokers: Brokers, log: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        fail(brokers, UNTRUSTED)
    (record,) = log.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "Kafka at kafka-1:9092 unavailable: TLS: not trusted; retrying"
    )


def test_each_cause_and_each_broker_is_told(
    brokers: Brokers, log: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        for failure in (UNTRUSTED, OTHER, REFUSED):
            fail(brokers, failure)
    assert [record.getMessage() for record in log.records] == [
        "Kafka at kafka-1:9092 unavailable: TLS: not trusted; retrying",
        "Kafka at kafka-2:9092 unavailable: DNS: not known; retrying",
        "Kafka at kafka-1:9092 unavailable: connection refused; retrying",
    ]


def test_one_failure_reported_twice_is_no_second_one(
    brokers: Brokers, log: pytest.LogCaptureFixture
) -> None:
    fail(brokers, REFUSED, "log")
    fail(brokers, REFUSED, "error_cb")
    assert not log.records
    fail(brokers, REFUSED, "error_cb")
    assert len(log.records) == 1


def test_a_cause_that_lasts_is_told_again_with_growing_pauses(
    brokers: Brokers, clock: Timeline, log: pytest.LogCaptureFixture
) -> None:
    begin, times = clock(), []
    while clock() - begin < 5000:
        before = len(log.records)
        fail(brokers, UNTRUSTED)
        if len(log.records) > before:
            times.append(clock() - begin)
        clock.advance(1)
    pauses = [late - early for early, late in itertools.pairwise(times)]
    assert pauses == [FIRST_LOG_INTERVAL, 120, 240, 480, *[MAX_LOG_INTERVAL] * 4]


def test_after_an_outage_the_first_answer_tells_of_the_recovery(
    brokers: Brokers, log: pytest.LogCaptureFixture
) -> None:
    fail(brokers, UNTRUSTED)
    fail(brokers, OTHER)
    brokers.all_failed(reporter="error_cb")
    log.clear()
    brokers.answered()
    brokers.answered()
    assert [record.getMessage() for record in log.records] == [
        "Kafka at kafka-1:9092 recovered",
        "Kafka at kafka-2:9092 recovered",
    ]
    assert not brokers.is_failing
    fail(brokers, UNTRUSTED)
    assert len(log.records) == 3


def test_a_broker_that_comes_and_goes_does_not_fill_the_log(
    brokers: Brokers, clock: Timeline, log: pytest.LogCaptureFixture
) -> None:
    for _ in range(200):
        clock.advance(0.5)
        fail(brokers, UNTRUSTED)
        brokers.all_failed(reporter="error_cb")
        brokers.answered()
    told = [record.levelname for record in log.records]
    assert told == ["WARNING", "INFO"] * (MAX_LOGGED_RECOVERIES + 2)
    # What comes again after a quiet minute is news.
    clock.advance(RECOVERED_AFTER + 1)
    fail(brokers, UNTRUSTED)
    assert len(log.records) == len(told) + 1


def test_causes_that_do_not_come_back_are_forgotten(
    brokers: Brokers, clock: Timeline
) -> None:
    for number in range(100):
        fail(brokers, BrokerFailure("kafka-1:9092", f"request {number} was denied"))
        brokers.all_failed(reporter="error_cb")
        brokers.answered()
    clock.advance(RECOVERED_AFTER + 1)
    fail(brokers, UNTRUSTED)
    brokers.all_failed(reporter="error_cb")
    brokers.answered()
    assert [cause for _, cause in brokers._over] == [UNTRUSTED.cause]


def test_while_others_answer_a_broker_that_is_away_is_still_away(
    brokers: Brokers, clock: Timeline, log: pytest.LogCaptureFixture
) -> None:
    fail(brokers, OTHER)
    log.clear()
    for _ in range(20):
        clock.advance(1)
        fail(brokers, OTHER)
        brokers.answered()
    assert not log.records
    clock.advance(RECOVERED_AFTER + 1)
    brokers.answered()
    (record,) = log.records
    assert record.getMessage() == "Kafka at kafka-2:9092 recovered"


def test_what_nobody_was_told_of_does_not_recover(
    brokers: Brokers, log: pytest.LogCaptureFixture
) -> None:
    fail(brokers, REFUSED)
    brokers.all_failed(reporter="error_cb")
    brokers.answered()
    assert not log.records
    assert not brokers.is_failing


def test_a_client_that_names_no_broker_is_told_of_too(
    brokers: Brokers, log: pytest.LogCaptureFixture
) -> None:
    brokers.all_failed(reporter="error_cb")
    brokers.all_failed(reporter="error_cb")
    (record,) = log.records
    assert "kafka-1:9092,kafka-2:9092 unavailable" in record.getMessage()


def test_an_error_is_explained_by_what_fails_now(
    brokers: Brokers, clock: Timeline
) -> None:
    assert brokers.explain() == ""
    fail(brokers, REFUSED)
    assert "connection refused" in brokers.explain()
    clock.advance(10)
    # One refusal that was long ago and is not repeated is no cause.
    assert brokers.explain() == ""
    fail(brokers, UNTRUSTED)
    clock.advance(10)
    fail(brokers, OTHER)
    assert brokers.explain() == (
        "Kafka at kafka-1:9092 unavailable: TLS: not trusted; "
        "Kafka at kafka-2:9092 unavailable: DNS: not known"
    )
