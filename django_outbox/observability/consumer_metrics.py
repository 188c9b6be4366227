"""Prometheus metrics of a consumer, without payloads or keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..events import ConsumerRead
from .consumer_status import ConsumerStatus
from .figures import Figure, Figures


def _counted(
    count: Callable[[ConsumerRead], int],
) -> Callable[[ConsumerStatus], float]:
    """Read a count of the last reading: nothing was counted before the first."""
    return lambda status: count(status.reading) if status.reading else 0


CONSUMER_FIGURES: Final[tuple[Figure[ConsumerStatus], ...]] = (
    Figure(
        "consumer_ready",
        "gauge",
        "1 while /readyz answers 200: this process does its part",
        lambda status: not status.reasons(),
    ),
    Figure(
        "consumer_partitions",
        "gauge",
        "Partitions of this process",
        lambda status: status.partitions,
    ),
    Figure(
        "consumer_lag",
        "gauge",
        "Messages of its partitions that were not read yet",
        # Absent while unknown: one NaN would make the sum of a group NaN.
        lambda status: (
            [((), status.reading.lag)] if status.reading and status.is_member else []
        ),
    ),
    Figure(
        "consumer_reading_age_seconds",
        "gauge",
        "Time since the process last told anything of itself",
        lambda status: status.reading_age,
    ),
    Figure(
        "consumer_processed",
        "counter",
        "Messages with committed effects",
        _counted(lambda reading: reading.processed),
    ),
    Figure(
        "consumer_repeats",
        "counter",
        "Messages that had been processed before",
        _counted(lambda reading: reading.repeats),
    ),
    Figure(
        "consumer_attempts",
        "counter",
        "Attempts, the failed ones included",
        _counted(lambda reading: reading.processed + reading.failed),
    ),
    Figure(
        "consumer_failed_attempts",
        "counter",
        "Attempts that failed",
        _counted(lambda reading: reading.failed),
    ),
    Figure(
        "consumer_dead_letters",
        "counter",
        "Messages that went to a dead letter topic",
        _counted(lambda reading: reading.dead_letters),
    ),
    Figure(
        "consumer_message_seconds",
        "histogram",
        "Time of each attempt, until its effects were committed or rolled back",
        lambda status: status.times,
    ),
)


class ConsumerMetrics(Figures[ConsumerStatus]):
    """
    The metrics of one process of `runconsumer`.

    Args:
        group: its consumer group, a label of each figure.
    """

    def __init__(self, status: ConsumerStatus, *, group: str) -> None:
        super().__init__(CONSUMER_FIGURES, status, group=group)
