"""
What a harvester process tells over HTTP: its health, and metrics.

A thread of its own reads the table where no meter does, so that a process that stands
by knows the backlog as the leader does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeAlias

from ..events import Observer
from ..exceptions import DatabaseError
from ..kafka.brokers import brokers_of
from ..observability.endpoints import App, served, warn_without_metrics
from ..observability.process_status import ProcessStatus
from ..settings.kafka_rules import servers_of
from ..settings.options import OutboxSettings
from .adapters import HarvestedTable

if TYPE_CHECKING:
    from .harvester import Harvester

Monitored: TypeAlias = Callable[["Harvester"], AbstractContextManager[None]]
"""Serves what is known of a harvester while the block runs."""


def monitored(options: OutboxSettings, observers: list[Observer]) -> Monitored:
    """
    Add the observers that METRICS_ADDRESS asks for; return what serves them.

    The context manager raises `ConfigurationError` if the address cannot be bound.
    """
    if not options.METRICS_ADDRESS:
        return lambda _: nullcontext()
    status = ProcessStatus(
        ready_age=options.READY_AGE,
        patience=options.DATABASE_DEADLINE + 2 * options.METER_INTERVAL,
        kafka_fault=brokers_of(servers_of(options.KAFKA)).outage,
    )
    observers.append(status)
    metrics = _metrics(options, status, observers)

    @contextmanager
    def serving(harvester: Harvester) -> Iterator[None]:
        stop = threading.Event()
        table = harvester.make_adapters().table("watch")
        with served(
            "METRICS_ADDRESS",
            options.METRICS_ADDRESS,
            is_alive=lambda: not harvester.has_failed,
            reasons=status.reasons,
            metrics=metrics,
        ):
            # A daemon: it may wait for a database that hangs.
            threading.Thread(
                target=_watch,
                args=(table, status, options.METER_INTERVAL, stop),
                name="outbox-watch",
                daemon=True,
            ).start()
            try:
                yield
            finally:
                stop.set()

    return serving


def _metrics(
    options: OutboxSettings, status: ProcessStatus, observers: list[Observer]
) -> App | None:
    """Return what answers with metrics; None: their package is not installed."""
    try:
        from ..observability.metrics import Metrics
    except ImportError:
        warn_without_metrics("METRICS_ADDRESS")
        return None
    metrics = Metrics(max_in_flight=options.MAX_IN_FLIGHT, status=status)
    observers.append(metrics)
    return metrics.app


def _watch(
    table: HarvestedTable, status: ProcessStatus, interval: float, stop: threading.Event
) -> None:
    """Read the table at intervals, unless this process's meter has just done so."""
    wait = 0.0
    with closing(table):
        while not stop.wait(wait):
            if wait and status.age < interval:
                wait = interval - status.age
                continue
            try:
                status.read(table.backlog())
            except DatabaseError as error:
                status.failed(error)
            wait = interval
