"""Containers are reached from this machine only; a stand-in plays the engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest
from testcontainers.core import utils as docker_utils
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import Reaper

from django_outbox.devstack import DevstackError
from django_outbox.devstack import stack as stack_module
from django_outbox.devstack.docker import (
    ContainerService,
    DockerKafka,
    DockerPostgres,
    does_engine_answer,
)

CONTAINER = {
    "Id": "c0ffee",
    "Name": "/c0ffee",
    "State": {"Status": "exited"},
    "Config": {"Image": "image", "Tty": False},
    "Image": "image",
}


class Engine(ThreadingUnixStreamServer):
    """Answers as Docker's engine does; its containers end at once."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.created: list[dict[str, Any]] = []
        self.removed = 0
        super().__init__(str(path), Request)


class Request(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.endswith("/_ping"):
            self.answer("OK")
        elif path.endswith("/version"):
            self.answer({"ApiVersion": "1.45", "Version": "27"})
        elif path.endswith("/logs"):
            self.answer("")
        else:
            self.answer(CONTAINER)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "/containers/create" in self.path:
            self.server.created.append(json.loads(body))
        self.answer(CONTAINER, code=201 if "/create" in self.path else 200)

    def do_DELETE(self) -> None:
        self.server.removed += 1
        if self.server.removed > len(self.server.created):
            self.answer({"message": "No such container: c0ffee"}, code=404)
        else:
            self.answer({})

    def answer(self, content: object, *, code: int = 200) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    with Engine(tmp_path / "docker.sock") as engine:
        threading.Thread(target=engine.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        # It would be one more container, and is not the subject.
        monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
        # As on a machine, wherever this test runs.
        monkeypatch.setattr(docker_utils, "inside_container", lambda: False)
        yield engine
        engine.shutdown()


def bindings(engine: Engine, service: ContainerService) -> list[dict[str, str]]:
    """What the engine is asked to publish when this service starts."""
    with pytest.raises(DevstackError, match="ended during its start"):
        service.start()
    # As `devstack()` does.
    service.close()
    service.close()
    (created,) = engine.created
    (published,) = created["HostConfig"]["PortBindings"].values()
    return list(published)


@pytest.mark.parametrize("kind", [DockerPostgres, DockerKafka])
def test_only_this_machine_reaches_a_container(
    engine: Engine, kind: type[DockerPostgres | DockerKafka]
) -> None:
    assert does_engine_answer()
    service = kind()
    port = service.address.removesuffix("/outbox").rpartition(":")[2]
    assert bindings(engine, service) == [{"HostIp": "127.0.0.1", "HostPort": port}]
    assert service.warning == ""


def test_two_servers_start_one_reaper(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is taken when the second one makes it."""
    made: list[Reaper] = []

    def make(_: type[Reaper]) -> Reaper:
        # The first one is still pulling the image.
        threading.Event().wait(0.2)
        made.append(Reaper())
        return made[-1]

    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", False)
    monkeypatch.setattr(Reaper, "_instance", None)
    monkeypatch.setattr(Reaper, "_create_instance", classmethod(make))
    services = [DockerPostgres(), DockerKafka()]
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(service.start) for service in services]
        assert all(isinstance(job.exception(), DevstackError) for job in jobs)
    for service in services:
        service.close()
    assert len(made) == 1


def test_a_broker_in_a_container_reaches_itself_at_the_address_it_gives(
    engine: Engine,
) -> None:
    """It calls itself there, for the markers of transactions."""
    service = DockerKafka()
    bindings(engine, service)
    port = service.address.rpartition(":")[2]
    (created,) = engine.created
    assert [*created["HostConfig"]["PortBindings"]] == [f"{port}/tcp"]
    variables = dict(one.split("=", 1) for one in created["Env"])
    assert f"://0.0.0.0:{port}" in variables["KAFKA_LISTENERS"]
    assert f"://127.0.0.1:{port}" in variables["KAFKA_ADVERTISED_LISTENERS"]


def test_a_remote_engine_publishes_for_all_and_that_is_said(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testcontainers_config, "tc_host_override", "engine.example")
    lines: list[str] = []
    service = stack_module._build("Kafka", "docker", lines.append)
    assert isinstance(service, DockerKafka)
    port = service.address.rpartition(":")[2]
    assert lines == [
        "Kafka: starting a container",
        "Kafka: the Docker engine is on engine.example; everyone who can reach that"
        f" machine can connect to engine.example:{port}",
    ]
    assert bindings(engine, service) == [{"HostIp": "", "HostPort": port}]


def test_the_password_is_not_in_the_warning(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testcontainers_config, "tc_host_override", "engine.example")
    service = DockerPostgres()
    assert "engine.example" in service.warning
    assert "@" not in service.warning
    service.close()
