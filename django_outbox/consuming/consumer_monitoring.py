"""What a consumer process tells over HTTP: its health, and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import Final

from ..events import WorkerEvent
from ..kafka.brokers import brokers_of
from ..observability.endpoints import App, served, warn_without_metrics
from ..settings.kafka_rules import servers_of
from ..settings.options import OutboxSettings
from .consumer_progress import Observer

_SETTING: Final = "CONSUMER_METRICS_ADDRESS"


class ConsumerStatus:
    """
    An observer of a consumer's events. Any thread may read it.

    Args:
        patience: seconds without an event after which the process is stuck.
        kafka_fault: why Kafka cannot be reached, or an empty string.
    """

    def __init__(
        self,
        *,
        patience: float,
        kafka_fault: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience = patience
        self._kafka_fault = kafka_fault
        self._clock = clock
        self._heard_at = clock()
        self._is_member = False

    def __call__(self, event: WorkerEvent) -> None:
        self._heard_at = self._clock()
        if event.kind in {"ready", "stopped"}:
            self._is_member = event.kind == "ready"

    def reasons(self) -> list[str]:
        """Return why this process does not do its part; none: it does."""
        reasons = []
        if not self._is_member:
            reasons.append("it is not in its consumer group")
        elif (silence := self._clock() - self._heard_at) > self._patience:
            reasons.append(
                f"a message has been under way for {silence:.0f} s: its handler takes"
                " long, or waits for a service that is away"
            )
        if kafka_fault := self._kafka_fault():
            reasons.append(kafka_fault)
        return reasons


def monitored(
    options: OutboxSettings, observers: list[Observer], *, group: str
) -> AbstractContextManager[None]:
    """
    Add the observers that CONSUMER_METRICS_ADDRESS asks for; return what serves them.

    The context manager raises `ConfigurationError` if the address cannot be bound.
    """
    if not options.CONSUMER_METRICS_ADDRESS:
        return nullcontext()
    status = ConsumerStatus(
        patience=(options.READY_AGE or inf) + options.METER_INTERVAL,
        kafka_fault=brokers_of(servers_of(options.KAFKA)).outage,
    )
    observers.append(status)
    return served(
        _SETTING,
        options.CONSUMER_METRICS_ADDRESS,
        # The process ends with its only thread.
        is_alive=lambda: True,
        reasons=status.reasons,
        metrics=_metrics(observers, group),
    )


def _metrics(observers: list[Observer], group: str) -> App | None:
    """Return what answers with metrics; None: their package is not installed."""
    try:
        from ..observability.consumer_metrics import ConsumerMetrics
    except ImportError:
        warn_without_metrics(_SETTING)
        return None
    metrics = ConsumerMetrics(group=group)
    observers.append(metrics)
    return metrics.app
