"""
Prometheus metrics of a harvester, without payloads or keys.

The numbers of the relay come with each `meter_read` event, those of the table from
`ProcessStatus`, so a scrape costs the harvester nothing.
"""

from __future__ import annotations

from math import nan

from prometheus_client import CollectorRegistry, Counter, Gauge, make_wsgi_app

from ..events import Event, MeterRead, RecordParked, TakeoverEnded, TakeoverStarted
from .endpoints import App
from .process_status import ProcessStatus
from .total import Total


class Metrics:
    """
    Observer that keeps the numbers of one harvester.

    Args:
        max_in_flight: W, exported so that dashboards can compare `in_flight` with it.
        status: what is known of the table.
    """

    def __init__(self, *, max_in_flight: int, status: ProcessStatus) -> None:
        self.registry = CollectorRegistry()
        self.app: App = make_wsgi_app(self.registry)
        """Answers a scrape."""
        gauge = self._gauge
        self._leads = gauge("leader", "1 while this process leads")
        gauge("max_in_flight", "The bound W of records in flight").set(max_in_flight)
        self._in_flight = gauge("in_flight", "Records produced and not settled")
        self._blocked = gauge("blocked_keys", "Keys that wait for a retry")
        gauge("backlog_records", "Rows in the table, up to a cap").set_function(
            lambda: status.backlog.records if status.backlog else nan
        )
        gauge("oldest_age_seconds", "Age of the oldest row").set_function(
            lambda: status.backlog.oldest_age if status.backlog else nan
        )
        self._relayed = self._total("relayed", "Records in Kafka, out of the table")
        self._failed = self._total("failed", "Deliveries that failed")
        self._parked = self._total("parked", "Records that were parked")
        self._errors = gauge("receiver_errors", "Signal receivers that failed")
        self._taken_over = Gauge(
            "django_outbox_taking_over",
            "1 while records of another cluster are relayed here",
            ["origin"],
            registry=self.registry,
        )
        self._events = Counter(
            "django_outbox_events",
            "Events by kind",
            ["kind"],
            registry=self.registry,
        )

    def __call__(self, event: Event) -> None:
        self._events.labels(event.kind).inc()
        if isinstance(event, MeterRead):
            self._in_flight.set(event.in_flight)
            self._blocked.set(event.blocked_keys)
            self._relayed.reach(event.purged)
            self._failed.reach(event.failed)
            self._errors.set(event.receiver_errors)
        elif isinstance(event, RecordParked):
            self._parked.inc()
        elif isinstance(event, TakeoverStarted):
            self._taken_over.labels(event.origin).set(1)
        elif isinstance(event, TakeoverEnded):
            self._taken_over.labels(event.origin).set(0)
        elif event.kind in ("leader_acquired", "leader_refreshed"):
            self._leads.set(1)
        elif event.kind in ("leader_revoked", "leader_fenced", "stopped"):
            self._leads.set(0)
            # They were the leader's; the next one has its own.
            self._in_flight.set(0)
            self._blocked.set(0)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"django_outbox_{name}", text, registry=self.registry)

    def _total(self, name: str, text: str) -> Total:
        return Total(f"django_outbox_{name}", text, registry=self.registry)
