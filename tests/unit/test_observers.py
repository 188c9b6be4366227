"""What those who watch a harvester are shown of it: metrics and the live line."""

from __future__ import annotations

import io
from dataclasses import replace
from math import isnan

import pytest
from rich.console import Console

from django_outbox.events import (
    Event,
    LeaderAcquired,
    LeaderFenced,
    LeaderRevoked,
    RecordParked,
)
from django_outbox.message.record import Backlog
from django_outbox.observability.metrics import Metrics
from django_outbox.observability.process_status import ProcessStatus
from django_outbox.observability.terminal import StatusLine
from django_outbox.relay.meter import Meter, Totals

from .samples import READING

PARKED = RecordParked(
    name="a", record_id=1, message_id="m", topic="t", attempts=2, error="no"
)

ENDS = [LeaderRevoked(name="a"), LeaderFenced(name="a", reason="no proof")]


@pytest.mark.parametrize("end", ENDS)
def test_who_leads_no_more_exports_what_is_still_true(end: Event) -> None:
    status = ProcessStatus(ready_age=60.0, patience=10.0)
    metrics = Metrics(max_in_flight=100, status=status)
    gauges = ["leader", "in_flight", "blocked_keys", "backlog_records"]

    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"django_outbox_{name}")

    for event in (LeaderAcquired(name="a"), READING):
        status(event)
        metrics(event)
    assert [value(name) for name in gauges] == [1, 7, 3, 5_000]
    assert value("oldest_age_seconds") == 300
    metrics(end)
    # The table is read by those who stand by, too.
    assert [value(name) for name in gauges] == [0, 0, 0, 5_000]
    assert value("oldest_age_seconds") == 300
    # What has been done stays done.
    assert value("relayed_total") == 1_000
    metrics(replace(READING, purged=1_001))
    metrics(PARKED)
    assert value("relayed_total") == 1_001
    assert value("parked_total") == 1


def test_a_backlog_that_nobody_has_read_is_no_zero() -> None:
    metrics = Metrics(
        max_in_flight=100, status=ProcessStatus(ready_age=60.0, patience=10.0)
    )
    assert isnan(
        metrics.registry.get_sample_value("django_outbox_backlog_records") or 0.0
    )


@pytest.mark.parametrize("end", ENDS)
def test_the_line_of_who_leads_no_more_shows_no_backlog(end: Event) -> None:
    line = StatusLine(Console(file=io.StringIO()))
    for event in (LeaderAcquired(name="a"), READING):
        line(event)
    assert "backlog" in line._render().plain
    line(end)
    assert "backlog" not in line._render().plain


def test_a_reading_is_dated_by_the_proof_behind_it() -> None:
    """Not by its end: the process may have been frozen while the table was asked."""
    meter = Meter(Totals([]), name="a", interval=5.0)
    backlog = Backlog(records=1, is_capped=False, oldest_age=0.5)
    reading = meter.read(12.5, leader_id="id", backlog=backlog, receiver_errors=0)
    assert reading.boottime_ns == 12_500_000_000
