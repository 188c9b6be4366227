"""
The devstack in Docker: both servers as containers, with testcontainers.

Ports are chosen here, because the engine would choose new ones after a
restart. They are published on this machine only, unless the engine is on
another machine: then everyone who can reach that machine can connect.
Testcontainers' reaper removes the containers of a killed owner.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from .embedded_kafka import SETTINGS, is_kafka_there, listener_settings
from .embedded_postgres import DATABASE, is_postgres_there
from .service import DevstackError, Service, free_port, wait_until

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

POSTGRES_IMAGE: Final = "postgres:18"
KAFKA_IMAGE: Final = "apache/kafka:4.3.1"

EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - inside the container

THIS_MACHINE: Final = "127.0.0.1"

_SOCKET: Final = Path("/var/run/docker.sock")

_REAPER: Final = threading.Lock()


def does_engine_answer() -> bool:
    """Whether a Docker engine answers within a few seconds."""
    if "DOCKER_HOST" not in os.environ and not _SOCKET.exists():
        return False
    try:
        import docker
        import testcontainers.core.container  # noqa: F401 - needed later
    except ImportError:
        return False
    try:
        client = docker.from_env(timeout=3)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except Exception:  # noqa: BLE001 - the client raises errors of many libraries
        return False


class ContainerService(Service):
    """A server in a container, on a port of the engine's host."""

    def __init__(
        self,
        address: str,
        container: DockerContainer,
        answers: Callable[[str], bool],
        *,
        host: str,
    ) -> None:
        super().__init__(address, source="docker")
        self.warning = (
            ""
            if host == THIS_MACHINE
            else f"the Docker engine is on {host}; everyone who can reach that machine"
            f" can connect to {address.rpartition('@')[2]}"
        )
        """A warning about who can connect; empty on this machine."""
        self._container = container
        self._answers = answers
        self._is_created = False

    def start(self) -> None:
        with _engine_errors():
            if self._is_created:
                self._container.get_wrapped_container().start()
            else:
                _start_reaper()
                self._container.start()
                self._is_created = True
        wait_until(
            lambda: self._answers(self.address),
            is_alive=self._is_running,
            explain=self._explain,
        )

    def stop(self) -> None:
        with _engine_errors():
            self._container.get_wrapped_container().stop(timeout=30)

    def kill(self) -> None:
        with _engine_errors():
            self._container.get_wrapped_container().kill()

    def close(self) -> None:
        from docker.errors import NotFound

        # Of the second call the engine says that there is no such container.
        with _engine_errors(), suppress(NotFound):
            self._container.stop()

    def _is_running(self) -> bool:
        with _engine_errors():
            wrapped = self._container.get_wrapped_container()
            wrapped.reload()
            return bool(wrapped.status == "running")

    def _explain(self) -> str:
        with _engine_errors():
            logs = self._container.get_wrapped_container().logs(tail=15)
        return f"The end of its output:\n{logs.decode(errors='replace')}"


class DockerPostgres(ContainerService):
    """PostgreSQL's official image."""

    def __init__(self) -> None:
        with _engine_errors():
            container = _container(POSTGRES_IMAGE)
            host = _host(container)
        port, password = free_port(), token_hex(16)
        container.with_env("POSTGRES_PASSWORD", password)
        container.with_env("POSTGRES_DB", DATABASE)
        publish(container, 5432, host=host, port=port)
        container.with_command("-c max_connections=200 -c max_prepared_transactions=20")
        address = f"postgres://postgres:{password}@{host}:{port}/{DATABASE}"
        super().__init__(address, container, is_postgres_there, host=host)


class DockerKafka(ContainerService):
    """Apache Kafka's image, with the settings of the embedded broker."""

    def __init__(self) -> None:
        with _engine_errors():
            container = _container(KAFKA_IMAGE)
            host = _host(container)
        port = free_port()
        address = f"{host}:{port}"
        # A broker calls itself by its advertised address: for the markers of
        # transactions. So the port is the same on both sides.
        listeners = listener_settings(
            address, port=port, controller_port=9093, host=EVERYWHERE
        )
        for name, value in {**SETTINGS, **listeners}.items():
            container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
        publish(container, port, host=host, port=port)
        super().__init__(address, container, is_kafka_there, host=host)


def publish(container: DockerContainer, inside: int, *, host: str, port: int) -> None:
    """
    Publish a port; for a local engine on the loopback interface only.

    Args:
        inside: Port inside the container.
        host: Address of the engine's ports, seen from this machine.
        port: Port on that host.
    """
    bindings: dict[str, Any] = container.ports
    # with_bind_ports() accepts no address and binds to all interfaces.
    bindings[str(inside)] = (host, port) if host == THIS_MACHINE else port


def _container(image: str) -> DockerContainer:
    from testcontainers.core.container import DockerContainer

    logging.getLogger("testcontainers").setLevel(logging.WARNING)
    return DockerContainer(image)


def _start_reaper() -> None:
    """
    Start testcontainers' reaper, once for both servers.

    Containers do so themselves, but two at once would start it twice, under one name:
    testcontainers-python issue 746.
    """
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import Reaper

    with _REAPER:
        if not testcontainers_config.ryuk_disabled:
            Reaper.get_instance()


def _host(container: DockerContainer) -> str:
    host = container.get_docker_client().host()
    # Containers publish IPv4 ports; the name may resolve to ::1 first.
    return THIS_MACHINE if host == "localhost" else host


@contextmanager
def _engine_errors() -> Iterator[None]:
    """Translate errors of the engine's client."""
    try:
        yield
    except DevstackError:
        raise
    except Exception as error:  # The client raises errors of many libraries.
        raise DevstackError(f"Docker: {error}") from error
