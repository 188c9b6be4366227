"""Prometheus metrics of a harvester, without payloads or keys."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Final

from .figures import Figure, Figures, Samples
from .process_status import ProcessStatus, TableStatistics

OTHER_TOPICS: Final = "other"
"""The label of all topics that are not among the largest."""


def _statistic(
    read: Callable[[TableStatistics], float],
) -> Callable[[ProcessStatus], float]:
    """Read a figure that is unknown until the table was measured."""
    return lambda status: read(status.statistics) if status.statistics else nan


def _backlog_by_topic(status: ProcessStatus) -> Samples:
    """Count the records of each topic; a topic may be called as the others are."""
    if status.statistics is None:
        return
    largest, others = status.statistics.topics
    named = dict(largest)
    others += named.pop(OTHER_TOPICS, 0)
    for topic, records in (*named.items(), (OTHER_TOPICS, others)):
        yield (topic,), records


HARVESTER_FIGURES: Final[tuple[Figure[ProcessStatus], ...]] = (
    Figure(
        "ready",
        "gauge",
        "1 while /readyz answers 200: this process does its part",
        lambda status: not status.reasons(),
    ),
    Figure("leader", "gauge", "1 while this process leads", lambda s: s.leads),
    Figure(
        "shards_led", "gauge", "Shards that this process leads", lambda s: len(s.led)
    ),
    Figure("shards", "gauge", "The setting SHARDS", lambda s: s.shards),
    Figure(
        "leader_changes",
        "counter",
        "How often this process became the leader",
        lambda status: status.leader_changes,
    ),
    Figure(
        "max_in_flight",
        "gauge",
        "The bound W of records in flight",
        lambda status: status.max_in_flight,
    ),
    Figure(
        "in_flight",
        "gauge",
        "Records produced by this process and not settled",
        lambda status: status.counts.in_flight,
    ),
    Figure(
        "blocked_keys",
        "gauge",
        "Keys whose record waits for a retry in this process",
        lambda status: status.counts.blocked_keys,
    ),
    Figure(
        "backlog_records",
        "gauge",
        "Rows in the table, up to a cap of 100,000",
        lambda status: status.backlog.records if status.backlog else nan,
    ),
    Figure(
        "oldest_age_seconds",
        "gauge",
        "Age of the row with the lowest id; 0 for an empty table",
        lambda status: status.backlog.oldest_age if status.backlog else nan,
    ),
    Figure(
        "backlog_by_topic_records",
        "gauge",
        "Rows in the table by topic, up to the same cap",
        _backlog_by_topic,
        "topic",
    ),
    Figure(
        "oldest_writer_seconds",
        "gauge",
        "Age of the oldest open transaction that writes to the table",
        _statistic(lambda statistics: statistics.oldest_writer_age),
    ),
    Figure(
        "dead_tuples",
        "gauge",
        "Rows of the table that wait for a vacuum (estimate)",
        _statistic(lambda statistics: statistics.dead_tuples),
    ),
    Figure(
        "pauses",
        "gauge",
        "Topics and keys that are paused by hand; 1 for the whole outbox",
        _statistic(lambda statistics: statistics.pauses),
    ),
    Figure(
        "table_reading_age_seconds",
        "gauge",
        "Time since the table last answered this process",
        lambda status: status.reading_age,
    ),
    Figure(
        "relayed",
        "counter",
        "Records in Kafka, out of the table",
        lambda status: status.counts.relayed,
    ),
    Figure(
        "delivery_seconds",
        "histogram",
        "Time from a row's creation to Kafka's acknowledgement, of a sample",
        lambda status: status.times,
    ),
    Figure(
        "failed",
        "counter",
        "Deliveries that failed",
        lambda status: status.counts.failed,
    ),
    Figure("parked", "counter", "Records that were parked", lambda s: s.parked),
    Figure(
        "receiver_errors",
        "counter",
        "Signal receivers that raised or overran",
        lambda status: status.counts.receiver_errors,
    ),
    Figure(
        "taking_over",
        "gauge",
        "1 while records of another cluster are relayed here",
        lambda s: [((str(origin),), on) for origin, on in [*s.takeovers.items()]],
        "origin",
    ),
    Figure(
        "events",
        "counter",
        "Events by kind",
        lambda s: [((kind,), count) for kind, count in [*s.events.items()]],
        "kind",
    ),
)


class Metrics(Figures[ProcessStatus]):
    """The metrics of one harvester."""

    def __init__(self, status: ProcessStatus) -> None:
        super().__init__(HARVESTER_FIGURES, status)
