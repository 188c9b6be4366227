"""
Health and metrics over HTTP, without payloads or keys.

============  ================================================================
`/livez`      200 while every thread works; `/healthz` is the same
`/readyz`     200 while the process does its part, else 503 with the reasons
`/metrics`    Prometheus, if its client is installed
============  ================================================================
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any, Final, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from ..exceptions import ConfigurationError, install_command

logger = logging.getLogger(__name__)

App: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""A WSGI application."""

_Response: TypeAlias = tuple[HTTPStatus, Sequence[str]]

_PATHS: Final = "try /livez, /readyz or /metrics"


REQUEST_TIMEOUT: Final = 10.0
"""Seconds after which a client that sends no request is hung up on."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Note a client that hung up, or sent nothing, as load balancers do."""
        logger.debug("A client of the health port failed: %s", sys.exception())


class _ServerOfIPv6(_Server):
    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT

    def log_message(self, *args: object) -> None:
        """Log no request and no malformed one: these are no lines of the log."""


@contextmanager
def served(
    setting: str,
    address: str,
    *,
    is_alive: Callable[[], bool],
    reasons: Callable[[], Sequence[str]],
    metrics: App | None,
) -> Iterator[None]:
    """
    Answer while the block runs.

    Runs on its own thread, and asks nobody: an answer comes while all other threads
    wait for a broker or a database.

    Args:
        setting: the name of the setting that has the address.
        address: host:port, or [host]:port for IPv6.
        is_alive: whether every thread works.
        reasons: why the process is not ready.
        metrics: None: Prometheus's client is not installed.

    Raises:
        ConfigurationError: the address cannot be bound.
    """

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics" and metrics is not None:
            return metrics(environ, start)
        status, lines = _response(path, is_alive, reasons)
        start(f"{status.value} {status.phrase}", [("Content-Type", "text/plain")])
        return ["".join(f"{line}\n" for line in lines).encode()]

    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    server_class = _ServerOfIPv6 if ":" in host else _Server
    try:
        server = make_server(host, int(port), app, server_class, _QuietHandler)
    except (OSError, TypeError, UnicodeError) as error:
        # A name that no host can have, such as one of 64 characters, is no OSError.
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"{setting}: {address!r} cannot be bound: {reason}."
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def warn_without_metrics(setting: str) -> None:
    """Log that only health is served."""
    logger.warning(
        "%s: only health is served, since a package is not installed; %s",
        setting,
        install_command("metrics"),
        extra={"action": "metrics"},
    )


def _response(
    path: str, is_alive: Callable[[], bool], reasons: Callable[[], Sequence[str]]
) -> _Response:
    if path in {"/livez", "/healthz"}:
        return _health([] if is_alive() else [_DEAD])
    if path == "/readyz":
        return _health(reasons() if is_alive() else [_DEAD])
    if path == "/metrics":
        return HTTPStatus.NOT_IMPLEMENTED, [
            f"a package is not installed; {install_command('metrics')}"
        ]
    return HTTPStatus.NOT_FOUND, [_PATHS]


_DEAD: Final = "a thread has died"


def _health(reasons: Sequence[str]) -> _Response:
    if reasons:
        return HTTPStatus.SERVICE_UNAVAILABLE, reasons
    return HTTPStatus.OK, ["ok"]
