"""
Prometheus metrics and a health check over HTTP, without payloads or keys.

`Metrics` is an observer; `serve()` answers `/metrics` and `/healthz`. The
numbers of the relay come with each `meter_read` event, so a scrape costs the
harvester nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, make_wsgi_app

from ..events import Event, MeterRead, TakeoverEnded, TakeoverStarted


class Metrics:
    """
    Observer that keeps the numbers of one harvester.

    Args:
        max_in_flight: W, exported so that dashboards can compare `in_flight` with it.
    """

    def __init__(self, *, max_in_flight: int) -> None:
        self.registry = CollectorRegistry()
        gauge = self._gauge
        self._leads = gauge("leader", "1 while this process leads")
        gauge("max_in_flight", "The bound W of records in flight").set(max_in_flight)
        self._in_flight = gauge("in_flight", "Records produced and not settled")
        self._blocked = gauge("blocked_keys", "Keys that wait for a retry")
        self._backlog = gauge("backlog_records", "Rows in the table, up to a cap")
        self._age = gauge("oldest_age_seconds", "Age of the oldest row")
        self._purged = gauge("purged_records", "Records purged by this process")
        self._failed = gauge("failed_deliveries", "Deliveries that failed")
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
            self._backlog.set(event.backlog)
            self._age.set(event.oldest_age)
            self._purged.set(event.purged)
            self._failed.set(event.failed)
            self._errors.set(event.receiver_errors)
        elif isinstance(event, TakeoverStarted):
            self._taken_over.labels(event.origin).set(1)
        elif isinstance(event, TakeoverEnded):
            self._taken_over.labels(event.origin).set(0)
        elif event.kind in ("leader_acquired", "leader_refreshed"):
            self._leads.set(1)
        elif event.kind in ("leader_revoked", "leader_fenced", "stopped"):
            self._leads.set(0)
            # Only the leader knows them; the next one exports them.
            for gauge in (self._in_flight, self._blocked, self._backlog, self._age):
                gauge.set(0)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"django_outbox_{name}", text, registry=self.registry)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    def log_request(self, *args: object) -> None:
        """Scrapes are not logged."""


def serve(
    address: str, metrics: Metrics, *, is_healthy: Callable[[], bool]
) -> WSGIServer:
    """
    Answer `/metrics` and `/healthz` on host:port until `shutdown()`.

    Runs on its own thread: a scrape must be answered while all other threads
    wait for a broker or a database.

    Raises:
        OSError: the address cannot be bound.
    """
    show = make_wsgi_app(metrics.registry)

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return show(environ, start)  # type: ignore[no-any-return]
        if path == "/healthz":
            healthy = is_healthy()
            status = "200 OK" if healthy else "503 Service Unavailable"
            start(status, [("Content-Type", "text/plain")])
            return [b"ok\n" if healthy else b"a thread of the harvester has died\n"]
        start("404 Not Found", [("Content-Type", "text/plain")])
        return [b"try /metrics or /healthz\n"]

    host, _, port = address.rpartition(":")
    server = make_server(host, int(port), app, _Server, _QuietHandler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
