"""
What a harvester process tells over HTTP: its health, and metrics.

A thread of its own reads the table, so that a process that stands by knows as much of
it as the leader does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from ..clock import boottime
from ..events import Observer
from ..exceptions import DatabaseError
from ..kafka.brokers import brokers_of
from ..observability.endpoints import App, served, warn_without_metrics
from ..observability.message_times import MessageTimes
from ..observability.process_status import (
    Counts,
    OpenWriters,
    ProcessStatus,
    TableStatistics,
)
from ..relay.meter import Counters
from ..settings.kafka_rules import servers_of
from ..settings.options import OutboxSettings
from .adapters import HarvestedTable

if TYPE_CHECKING:
    from .harvester import Harvester

logger = logging.getLogger(__name__)

Monitored: TypeAlias = Callable[["Harvester"], AbstractContextManager[None]]
"""Serves what is known of a harvester while the block runs."""


STATISTICS_INTERVAL: Final = 5.0
"""Least seconds between two measurements of the table. With 100,000 rows one costs the
server about as much as the count of the backlog."""

SHOWN_TOPICS: Final = 20
"""Topics that have a backlog of their own in the metrics."""


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
        max_in_flight=options.MAX_IN_FLIGHT,
        shards=options.SHARDS,
        kafka_fault=brokers_of(servers_of(options.KAFKA)).outage,
    )
    observers.append(status)
    metrics = _metrics(status)

    @contextmanager
    def serving(harvester: Harvester) -> Iterator[None]:
        stop = threading.Event()
        status.group_fault = lambda: harvester.group_fault
        table = harvester.make_adapters().table("watch")
        monitor = TableMonitor(
            table, status, harvester, interval=options.METER_INTERVAL
        )
        with served(
            "METRICS_ADDRESS",
            options.METRICS_ADDRESS,
            is_alive=lambda: not harvester.has_failed,
            reasons=status.reasons,
            metrics=metrics,
        ):
            # A daemon: it may wait for a database that hangs.
            threading.Thread(
                target=monitor.run, args=(stop,), name="outbox-watch", daemon=True
            ).start()
            try:
                yield
            finally:
                stop.set()

    return serving


def _metrics(status: ProcessStatus) -> App | None:
    """Return what answers with metrics; None: their package is not installed."""
    try:
        from ..observability.metrics import Metrics
    except ImportError:
        warn_without_metrics("METRICS_ADDRESS")
        return None
    return Metrics(status).app


class Relays(Protocol):
    """What the relays of this process count; a harvester."""

    @property
    def counters(self) -> Counters | None:
        """None: they do not run."""

    @property
    def times(self) -> MessageTimes | None:
        """How long records took; None: they do not run."""

    @property
    def receiver_errors(self) -> int:
        """Signal receivers that raised or overran."""


class TableMonitor:
    """
    Reads for the status what no event brings, in every process.

    The backlog it reads only where the leader's meter has not just done so.

    Args:
        interval: seconds between two readings.
    """

    def __init__(
        self,
        table: HarvestedTable,
        status: ProcessStatus,
        relays: Relays,
        *,
        interval: float,
        clock: Callable[[], float] = boottime,
    ) -> None:
        self._table = table
        self._status = status
        self._relays = relays
        self._interval = interval
        self._clock = clock
        self._writers = OpenWriters(clock)
        self._is_first = True
        self._measured_at = -inf

    def run(self, stop: threading.Event) -> None:
        """Read at intervals until stopped."""
        with closing(self._table):
            wait = 0.0
            while not stop.wait(wait):
                try:
                    wait = self.step()
                except Exception:
                    # A process that relays on must not look as it did hours ago.
                    logger.exception("Cannot read the outbox for its metrics")
                    self._status.statistics = None
                    wait = self._interval

    def step(self) -> float:
        """Read what is due; return the seconds until something is due again."""
        self._count()
        if self._is_first or self._status.age >= self._interval:
            self._is_first = False
            try:
                self._status.read(self._table.backlog())
            except DatabaseError as error:
                self._status.failed(error)
                return self._interval
        if self._clock() - self._measured_at >= STATISTICS_INTERVAL:
            self._measured_at = self._clock()
            self._measure()
        return max(self._interval - self._status.age, _LEAST_WAIT)

    def _count(self) -> None:
        """Count what was relayed after the last reading of a leader's meter."""
        counters = self._relays.counters
        self._status.times = self._relays.times or self._status.times
        if counters is not None:
            self._status.counts = Counts(
                relayed=counters.purged,
                failed=counters.failed,
                in_flight=counters.in_flight,
                blocked_keys=len(counters.blocked),
                receiver_errors=self._relays.receiver_errors,
            )

    def _measure(self) -> None:
        try:
            self._status.statistics = TableStatistics(
                topics=self._table.topics(limit=SHOWN_TOPICS),
                oldest_writer_age=self._writers.oldest(self._table.writer_ages()),
                dead_tuples=self._table.dead_tuples(),
                pauses=len(self._table.pauses()),
            )
        except DatabaseError as error:
            # Whether the database is away, the backlog says.
            logger.debug("Cannot measure the outbox table: %s", error)
            self._status.statistics = None


_LEAST_WAIT: Final = 0.01
"""Seconds: a reading of the meter may end just before the monitor looks for it."""
