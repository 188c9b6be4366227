"""Composes the devstack: a source for each service, both started at once."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Final, TypeAlias

from ..exceptions import OutboxError
from ..wording import first_line
from .service import DevstackError, ExternalService, Service

Progress: TypeAlias = Callable[[str], None]
"""Called with one line of text for people, from any thread."""

SOURCES: Final = ("environment", "docker", "embedded")
"""Sources in order; `DEVSTACK_SOURCES` (comma-separated) restricts them."""

PRIVATE: Final = ("docker", "embedded")
"""Sources of private servers, which may be stopped and killed."""

VARIABLES: Final = {
    "Postgres": "DATABASE_URL",
    "Kafka": "KAFKA_BOOTSTRAP_SERVERS",
}
"""Environment variables with the addresses of the services."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A running Postgres and a running Kafka."""

    postgres: Service
    kafka: Service

    @property
    def database_url(self) -> str:
        """Value for `DATABASE_URL`: an empty database with a superuser."""
        return self.postgres.address

    @property
    def bootstrap_servers(self) -> str:
        """Value for `KAFKA_BOOTSTRAP_SERVERS`."""
        return self.kafka.address

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables for child processes that use these servers."""
        return {
            VARIABLES["Postgres"]: self.database_url,
            VARIABLES["Kafka"]: self.bootstrap_servers,
        }


@contextmanager
def devstack(
    *, sources: Sequence[str] = SOURCES, progress: Progress = lambda _: None
) -> Iterator[Stack]:
    """
    Provide both services while the block runs; end those that it started.

    Args:
        sources: Sources to try, in this order; `PRIVATE` for fault tests.
        progress: Called with a line of text while the services start.

    Raises:
        DevstackError: no source can provide a service; says what to do.
    """
    if chosen := os.environ.get("DEVSTACK_SOURCES"):
        names = [name.strip() for name in chosen.split(",")]
        if unknown := ", ".join(sorted({*names} - {*SOURCES})):
            raise DevstackError(
                f"DEVSTACK_SOURCES: unknown source {unknown}; choose from"
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
        # After Ctrl-C a start may still be running; closing ends it.
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
    """Start the service from the first source that can provide it."""
    reasons = []
    for source in sources:
        begun = time.monotonic()
        service = None
        try:
            if (service := _build(name, source, progress)) is None:
                if source == "docker" and shutil.which("docker"):
                    reasons.append(
                        "docker: is installed, but no engine answers at DOCKER_HOST or"
                        " /var/run/docker.sock."
                    )
                continue
            started.append(service)
            # After the append: either the owner closes it, or this sees the flag.
            if is_over.is_set():
                break
            service.start()
        except OutboxError as error:
            reasons.append(f"{source}: {error}")
            if service:
                service.close()
            if is_over.is_set():
                break
            progress(f"{name}: {source} failed. {first_line(error)}")
            continue
        took = time.monotonic() - begun
        progress(f"{name} is ready ({source}, {took:.1f} s)")
        return service
    ways_out = "\n".join([*reasons, f"set {VARIABLES[name]}."])
    raise DevstackError(f"No {name}: {ways_out}")


def _build(name: str, source: str, progress: Progress) -> Service | None:
    """Create the service without starting it; None if the source is unavailable."""
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

    progress(f"{name}: starting an embedded server")
    return (
        EmbeddedPostgres() if name == "Postgres" else EmbeddedKafka(progress=progress)
    )
