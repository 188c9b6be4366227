"""When a process says that it does its part, and why it does not."""

from __future__ import annotations

import pytest

from django_outbox.message.record import Backlog, TopicCounts
from django_outbox.observability.process_status import (
    OpenWriters,
    ProcessStatus,
    TableStatistics,
)
from tests.fakes.timeline import Timeline

from .samples import READING


@pytest.fixture
def status(clock: Timeline) -> ProcessStatus:
    """Of a process that stands by, and whose table is empty."""
    status = ProcessStatus(ready_age=60.0, patience=10.0, clock=clock)
    status.read(Backlog(0, is_capped=False, oldest_age=0.0))
    return status


def test_a_process_that_stands_by_is_ready(status: ProcessStatus) -> None:
    assert status.reasons() == []


def test_a_process_that_is_not_in_the_group_is_not_ready(status: ProcessStatus) -> None:
    fault = "it is not in the leader group"
    status.group_fault = lambda: fault
    assert status.reasons() == [fault]
    fault = ""
    assert status.reasons() == []


def test_an_error_of_the_database_is_a_reason_until_it_answers(
    status: ProcessStatus,
) -> None:
    status.failed(RuntimeError("connection refused"))
    assert status.reasons() == ["the database is away: connection refused"]
    status.read(Backlog(3, is_capped=False, oldest_age=1.0))
    assert status.reasons() == []
    assert status.backlog == (3, False, 1.0)


def test_a_database_that_hangs_is_a_reason(
    status: ProcessStatus, clock: Timeline
) -> None:
    clock.advance(10.0)
    assert status.reasons() == []
    clock.advance(1.0)
    assert status.reasons() == ["the database has not answered for 11 s"]


def test_an_old_record_is_a_reason(status: ProcessStatus) -> None:
    status.read(Backlog(1, is_capped=False, oldest_age=60.0))
    assert status.reasons() == []
    status(READING)
    (reason,) = status.reasons()
    assert reason == "the oldest record is 300 s old, more than READY_AGE (60 s)"
    patient = ProcessStatus(ready_age=0.0, patience=10.0)
    patient(READING)
    assert patient.reasons() == []


def test_a_kafka_that_is_away_is_a_reason() -> None:
    fault = "Kafka at localhost:1 unavailable: connection refused"
    status = ProcessStatus(ready_age=60.0, patience=10.0, kafka_fault=lambda: fault)
    assert status.reasons() == [fault]


def test_figures_of_a_database_that_stays_away_are_unknown(
    status: ProcessStatus, clock: Timeline
) -> None:
    status.statistics = TableStatistics(TopicCounts((), 0), 0.0, 0)
    clock.advance(10.0)
    status.failed(RuntimeError("connection refused"))
    assert status.statistics is None
    assert status.backlog is not None
    clock.advance(0.1)
    status.failed(RuntimeError("connection refused"))
    assert status.backlog is None


def test_the_age_of_a_reading_counts_from_the_last_answer(
    status: ProcessStatus, clock: Timeline
) -> None:
    clock.advance(4.0)
    status.failed(RuntimeError("connection refused"))
    clock.advance(2.0)
    assert (status.age, status.reading_age) == (2.0, 6.0)
    status.read(Backlog(0, is_capped=False, oldest_age=0.0))
    assert status.reading_age == 0.0


def test_the_oldest_writer_is_the_oldest_of_those_that_are_open(
    clock: Timeline,
) -> None:
    writers = OpenWriters(clock)
    assert writers.oldest({}) == 0.0
    assert writers.oldest({"3/7": 12.0, "4/1": 5.0}) == 12.0
    assert writers.oldest({"4/1": 6.0}) == 6.0


def test_a_writer_whose_start_is_hidden_ages_from_the_first_look(
    clock: Timeline,
) -> None:
    writers = OpenWriters(clock)
    assert writers.oldest({"3/7": None}) == 0.0
    clock.advance(5.0)
    assert writers.oldest({"3/7": None, "4/1": None}) == 5.0
    clock.advance(5.0)
    assert writers.oldest({"4/1": None}) == 5.0
    # Another transaction of the same session has another name.
    assert writers.oldest({"3/8": None}) == 0.0
