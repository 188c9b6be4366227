"""Serves the health of a consumer process, and its metrics, over HTTP."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import Final

from ..kafka.brokers import brokers_of
from ..observability.consumer_status import ConsumerStatus
from ..observability.endpoints import App, served, warn_without_metrics
from ..observability.message_times import MessageTimes
from ..settings.kafka_rules import servers_of
from ..settings.options import OutboxSettings
from .consumer_progress import Observer

_SETTING: Final = "CONSUMER_METRICS_ADDRESS"


def monitored(
    options: OutboxSettings,
    observers: list[Observer],
    *,
    group: str,
    times: MessageTimes,
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
        times=times,
    )
    observers.append(status)
    return served(
        _SETTING,
        options.CONSUMER_METRICS_ADDRESS,
        # The process ends with its only thread.
        is_alive=lambda: True,
        reasons=status.reasons,
        metrics=_metrics(status, group),
    )


def _metrics(status: ConsumerStatus, group: str) -> App | None:
    """Return what answers with metrics; None: their package is not installed."""
    try:
        from ..observability.consumer_metrics import ConsumerMetrics
    except ImportError:
        warn_without_metrics(_SETTING)
        return None
    return ConsumerMetrics(status, group=group).app
