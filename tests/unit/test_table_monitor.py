"""What a process reads of the table for those who watch it, and how often."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from django_outbox.exceptions import DatabaseUnavailable
from django_outbox.harvester.monitoring import STATISTICS_INTERVAL, TableMonitor
from django_outbox.message.record import Backlog
from django_outbox.observability.process_status import ProcessStatus
from tests.fakes.outbox import InMemoryOutbox
from tests.fakes.timeline import Timeline

from .samples import READING


class Table(InMemoryOutbox):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.counted = self.measured = 0
        self.fails = ""

    def backlog(self) -> Backlog:
        self.counted += 1
        if self.fails == "backlog":
            raise DatabaseUnavailable("connection refused")
        return super().backlog()

    def dead_tuples(self) -> int:
        self.measured += 1
        if self.fails == "statistics":
            raise DatabaseUnavailable("permission denied")
        return 17

    def writer_ages(self) -> dict[str, float | None]:
        return {"3/1": 8.5}


class Process:
    """A process that stands by, with a clock of its own."""

    def __init__(self) -> None:
        self.clock, self.table = Timeline(), Table()
        self.relays: Any = SimpleNamespace(counters=None, receiver_errors=0, times=None)
        self.status = ProcessStatus(ready_age=60.0, patience=10.0, clock=self.clock)
        self.monitor = TableMonitor(
            self.table, self.status, self.relays, interval=1.0, clock=self.clock
        )

    def step(self, *, after: float = 0.0) -> float:
        self.clock.advance(after)
        return self.monitor.step()


@pytest.fixture
def process() -> Process:
    return Process()


def test_a_process_that_stands_by_reads_all_of_it(process: Process) -> None:
    process.table.insert("orders", "k")
    process.table.paused = [("orders", None)]
    assert process.step() == 1.0
    status = process.status
    assert status.backlog is not None
    assert status.backlog.records == 1
    assert status.statistics == (((("orders", 1),), 0), 8.5, 17, 1)


def test_the_table_is_measured_every_few_seconds_only(process: Process) -> None:
    process.step()
    for _ in range(4):
        assert process.step(after=1.0) == 1.0
    assert (process.table.counted, process.table.measured) == (5, 1)
    process.step(after=STATISTICS_INTERVAL - 4.0)
    assert process.table.measured == 2


def test_a_leader_does_not_count_its_backlog_twice(process: Process) -> None:
    process.step()
    for _ in range(5):
        process.status(READING)
        assert process.step(after=0.5) == 0.5
    assert process.table.counted == 1
    # It measures the table all the same.
    process.status(READING)
    process.step(after=STATISTICS_INTERVAL)
    assert process.table.measured == 2


def test_a_database_that_is_away_is_a_reason(process: Process) -> None:
    process.table.fails = "backlog"
    assert process.step() == 1.0
    assert process.table.measured == 0
    assert "connection refused" in process.status.reasons()[0]


def test_a_table_that_cannot_be_measured_is_none(process: Process) -> None:
    process.step()
    process.table.fails = "statistics"
    process.step(after=STATISTICS_INTERVAL)
    assert process.status.statistics is None
    assert process.status.reasons() == []


def test_what_was_relayed_after_the_last_reading_counts(process: Process) -> None:
    counters = SimpleNamespace(purged=40, failed=2, in_flight=0, blocked=[])
    process.relays.counters = counters
    process.step()
    assert process.status.counts.relayed == 40
    assert process.status.counts.failed == 2


def test_an_unexpected_error_does_not_end_it(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()

    class Relays:
        """Cannot be counted once, and stops the monitor when it could be."""

        times = None
        receiver_errors = 0
        asked = 0

        @property
        def counters(self) -> None:
            self.asked += 1
            if self.asked == 1:
                raise IndexError("no relay yet")
            stop.set()

    monitor = TableMonitor(
        process.table, process.status, Relays(), interval=0.01, clock=process.clock
    )
    monitor.run(stop)
    assert "Cannot read the outbox" in caplog.text
    assert "no relay yet" in caplog.text
    assert process.status.statistics is not None
