"""
Prometheus metrics of a consumer, without payloads or keys.

The numbers come with each `consumer_read` event, so a scrape costs nothing.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, make_wsgi_app

from ..events import ConsumerRead, PartitionsChanged, WorkerEvent
from .endpoints import App
from .total import Total


class ConsumerMetrics:
    """
    Observer that keeps the numbers of one process of `runconsumer`.

    Args:
        group: its consumer group, a label of each figure.
    """

    def __init__(self, *, group: str) -> None:
        self.registry = CollectorRegistry()
        self.app: App = make_wsgi_app(self.registry)
        """Answers a scrape."""
        self._group = group
        self._lag = self._gauge("lag", "Messages that were not read yet")
        self._partitions = self._gauge("partitions", "Partitions of this process")
        self._processed = self._total("processed", "Messages with committed effects")
        self._repeats = self._total("repeats", "Messages that had been processed")
        self._failed = self._total("failed_attempts", "Attempts that failed")
        self._dead = self._total("dead_letters", "Messages that were set aside")

    def __call__(self, event: WorkerEvent) -> None:
        if isinstance(event, ConsumerRead):
            self._lag.set(event.lag)
            self._processed.reach(event.processed)
            self._repeats.reach(event.repeats)
            self._failed.reach(event.failed)
            self._dead.reach(event.dead_letters)
        elif isinstance(event, PartitionsChanged):
            self._partitions.set(len(event.partitions))

    def _gauge(self, name: str, text: str) -> Gauge:
        name = f"django_outbox_consumer_{name}"
        gauge = Gauge(name, text, ["group"], registry=self.registry)
        return gauge.labels(self._group)

    def _total(self, name: str, text: str) -> Total:
        name = f"django_outbox_consumer_{name}"
        total = Total(name, text, ["group"], registry=self.registry)
        return total.labels(self._group)
