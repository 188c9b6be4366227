"""What those who watch a harvester are shown of it: metrics and the live line."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from math import isnan
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from django_outbox.events import (
    Event,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    RecordParked,
    TakeoverEnded,
    TakeoverStarted,
)
from django_outbox.message.record import Backlog, TopicCounts
from django_outbox.observability.metrics import HARVESTER_FIGURES, Metrics
from django_outbox.observability.process_status import ProcessStatus, TableStatistics
from django_outbox.observability.terminal import StatusLine
from django_outbox.relay.meter import Meter, Totals

from .leading import Term
from .samples import READING

PARKED = RecordParked(
    name="a", record_id=1, message_id="m", topic="t", attempts=2, error="no"
)

SECONDS = "django_outbox_delivery_seconds"

ENDS = [LeaderRevoked(name="a"), LeaderFenced(name="a", reason="no proof")]


def exported(status: ProcessStatus) -> Callable[..., float | None]:
    registry = Metrics(status).registry

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"django_outbox_{name}", labels)

    return value


@pytest.fixture
def status() -> ProcessStatus:
    return ProcessStatus(ready_age=60.0, patience=10.0, max_in_flight=100)


@pytest.mark.parametrize("end", ENDS)
def test_who_leads_no_more_exports_what_is_still_true(
    end: Event, status: ProcessStatus
) -> None:
    value = exported(status)
    gauges = ["leader", "in_flight", "blocked_keys", "backlog_records"]
    for event in (LeaderAcquired(name="a"), READING):
        status(event)
    assert [value(name) for name in gauges] == [1, 7, 3, 5_000]
    assert value("oldest_age_seconds") == 300
    assert value("max_in_flight") == 100
    status(end)
    # The table is read by those who stand by, too.
    assert [value(name) for name in gauges] == [0, 0, 0, 5_000]
    assert value("oldest_age_seconds") == 300
    # What has been done stays done.
    assert value("relayed_total") == 1_000
    status(replace(READING, purged=1_001))
    status(PARKED)
    assert value("relayed_total") == 1_001
    assert value("parked_total") == 1


def test_changes_of_the_leader_are_counted(status: ProcessStatus) -> None:
    value = exported(status)
    assert value("leader_changes_total") == 0
    assert value("events_total", kind="leader_fenced") == 0
    status(LeaderAcquired(name="a"))
    status(LeaderRefreshed(name="a", previous_leader_id="x", reason="mark lost"))
    assert value("leader_changes_total") == 1
    status(LeaderRevoked(name="a"))
    status(LeaderAcquired(name="a"))
    assert value("leader_changes_total") == 2
    assert value("events_total", kind="leader_acquired") == 2


def test_what_nobody_has_read_is_no_zero(status: ProcessStatus) -> None:
    value = exported(status)
    for name in (
        *("backlog_records", "oldest_age_seconds"),
        *("oldest_writer_seconds", "dead_tuples"),
    ):
        assert isnan(value(name) or 0.0), name
    assert value("backlog_by_topic_records", topic="other") is None


def test_the_largest_topics_have_a_backlog_of_their_own(status: ProcessStatus) -> None:
    value = exported(status)
    # A topic may have the name that the rest has, and a label is there once only.
    topics = TopicCounts((("orders", 70), ("other", 20)), 5)
    status.statistics = TableStatistics(topics, oldest_writer_age=9.5, dead_tuples=44)
    assert value("backlog_by_topic_records", topic="orders") == 70
    assert value("backlog_by_topic_records", topic="other") == 25
    assert value("oldest_writer_seconds") == 9.5
    assert value("dead_tuples") == 44
    status.statistics = status.statistics._replace(topics=TopicCounts((), 0))
    assert value("backlog_by_topic_records", topic="orders") is None
    assert value("backlog_by_topic_records", topic="other") == 0


def test_a_takeover_is_shown_for_its_cluster(status: ProcessStatus) -> None:
    value = exported(status)
    status(TakeoverStarted(name="a", origin=2, records=5))
    assert value("taking_over", origin="2") == 1
    status(TakeoverEnded(name="a", origin=2, records=9))
    assert value("taking_over", origin="2") == 0


def test_metrics_tell_what_readyz_tells(status: ProcessStatus) -> None:
    value = exported(status)
    status.group_fault = lambda: "it is not in the leader group"
    assert value("ready") == 0
    status.group_fault = lambda: ""
    assert value("ready") == 1
    status(READING)
    assert value("ready") == 0


def test_all_figures_are_exported_in_both_formats(status: ProcessStatus) -> None:
    status(TakeoverStarted(name="a", origin=2, records=5))
    topics = TopicCounts((("orders", 70),), 5)
    status.statistics = TableStatistics(topics, oldest_writer_age=9.5, dead_tuples=44)
    registry = Metrics(status).registry
    families = text_string_to_metric_families(generate_latest(registry).decode())
    names = {sample.name for family in families for sample in family.samples}
    times = {name for name in names if name.startswith(SECONDS)}
    assert times == {f"{SECONDS}_{part}" for part in ("bucket", "count", "sum")}
    assert names - times | {SECONDS} == {
        figure.exported_name for figure in HARVESTER_FIGURES
    }
    generate: Any = openmetrics.generate_latest
    open_metrics = generate(registry).decode()
    assert open_metrics.count("# TYPE ") == len(HARVESTER_FIGURES)
    assert open_metrics.endswith("# EOF\n")


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
    reading = meter.read(12.5, term=Term("id"), backlog=backlog, receiver_errors=0)
    assert reading.boottime_ns == 12_500_000_000
