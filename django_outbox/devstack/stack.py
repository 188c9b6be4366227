"""
Compose the devstack: a source for each service, both started at once.

Comes after `bootstrap.py` in our own scripts; what it yields goes into the
settings of whatever needs a database and a broker.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Final, TypeAlias

from ..exceptions import OutboxError
from .service import DevstackError, ExternalService, Service

Progress: TypeAlias = Callable[[str], None]
"""Called with one line of text for people, from any thread."""

SOURCES: Final = ("environment", "docker", "embedded")
"""In this order; `DEVSTACK_SOURCES`, with commas, narrows the choice."""

PRIVATE: Final = ("docker", "embedded")
"""Servers of one's own, to stop and to kill."""


VARIABLES: Final = {
    "Postgres": "DATABASE_URL",
    "Kafka": "KAFKA_BOOTSTRAP_SERVERS",
}
"""Where the environment names a service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A Postgres and a Kafka that answer."""

    postgres: Service
    kafka: Service

    @property
    def database_url(self) -> str:
        """For `DATABASE_URL`: an empty database, and a superuser's name."""
        return self.postgres.address

    @property
    def bootstrap_servers(self) -> str:
        """For `KAFKA_BOOTSTRAP_SERVERS`."""
        return self.kafka.address

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that lead a child process to these servers."""
        return {
            VARIABLES["Postgres"]: self.database_url,
            VARIABLES["Kafka"]: self.bootstrap_servers,
        }


@contextmanager
def devstack(
    *, sources: Sequence[str] = SOURCES, progress: Progress = lambda _: None
) -> Iterator[Stack]:
    """
    Provide both services while the block runs; end those that were started.

    Args:
        sources: Where to look, in this order; `PRIVATE` for fault tests.
        progress: Hears what is going on while the services start.

    Raises:
        DevstackError: no source has one of the services; says what to do.
    """
    if chosen := os.environ.get("DEVSTACK_SOURCES"):
        names = [name.strip() for name in chosen.split(",")]
        if unknown := ", ".join(sorted({*names} - {*SOURCES})):
            raise DevstackError(
                f"DEVSTACK_SOURCES: there is no {unknown}; choose from"
                f" {', '.join(SOURCES)}."
            )
        sources = [source for source in sources if source in names]
    started: list[Service] = []
    is_over = Event()

    def provide(name: str) -> Service:
        return _start(name, sources, progress, started, is_over)

    executor = ThreadPoolExecutor(2, thread_name_prefix="devstack")
    try:
        postgres = executor.submit(provide, "Postgres")
        kafka = executor.submit(provide, "Kafka")
        yield Stack(postgres=postgres.result(), kafka=kafka.result())
    finally:
        is_over.set()
        # Closing also ends a start that is still going on, after a Ctrl-C.
        for service in started:
            service.close()
        executor.shutdown()
        for service in started:
            service.close()


def _start(
    name: str,
    sources: Sequence[str],
    progress: Progress,
    started: list[Service],
    is_over: Event,
) -> Service:
    """Start the service from the first source that has it."""
    reasons = []
    for source in sources:
        begun = time.monotonic()
        service = None
        try:
            if (service := _build(name, source, progress)) is None:
                continue
            started.append(service)
            # After the line above: either the owner closes it, or this sees why.
            if is_over.is_set():
                break
            service.start()
        except OutboxError as error:
            reasons.append(f"{source}: {error}")
            if service:
                service.close()
            if is_over.is_set():
                break
            progress(f"{name}: not from {source}. {str(error).splitlines()[0]}")
            continue
        took = time.monotonic() - begun
        progress(f"{name} is there ({source}, {took:.1f} s)")
        return service
    ways_out = "\n".join([*reasons, f"set {VARIABLES[name]}."])
    raise DevstackError(f"No {name}: {ways_out}")


def _build(name: str, source: str, progress: Progress) -> Service | None:
    """The service from this source, not started, or None if it has none."""
    if source == "environment":
        variable = VARIABLES[name]
        address = os.environ.get(variable)
        return ExternalService(address, variable=variable) if address else None
    if source == "docker":
        from .docker import DockerKafka, DockerPostgres, does_engine_answer

        if not does_engine_answer():
            return None
        progress(f"{name}: starting a container")
        service = DockerPostgres() if name == "Postgres" else DockerKafka()
        if service.warning:
            progress(f"{name}: {service.warning}")
        return service
    from .embedded_kafka import EmbeddedKafka
    from .embedded_postgres import EmbeddedPostgres

    progress(f"{name}: starting a server of its own")
    return (
        EmbeddedPostgres() if name == "Postgres" else EmbeddedKafka(progress=progress)
    )
