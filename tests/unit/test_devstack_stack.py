"""Where the devstack takes each service from."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from django_outbox.devstack import DevstackError, devstack
from django_outbox.devstack import stack as stack_module
from django_outbox.devstack.__main__ import ending
from django_outbox.devstack.docker import does_engine_answer
from django_outbox.devstack.service import (
    ExternalService,
    Service,
    free_port,
    wait_until,
)
from django_outbox.devstack.stack import PRIVATE

DATABASE_URL = "postgres://somebody@db.example/outbox"
SERVERS = "kafka.example:9092"


class RecordedService(Service):
    """Remembers what was done to it; `start` may fail."""

    def __init__(self, address: str, *, fails: bool = False) -> None:
        super().__init__(address, source="embedded")
        self.fails = fails
        self.done: list[str] = []

    def start(self) -> None:
        self.done.append("start")
        if self.fails:
            raise DevstackError("out of luck")

    def stop(self) -> None:
        self.done.append("stop")

    def kill(self) -> None:
        self.done.append("kill")

    def close(self) -> None:
        self.done.append("close")


@pytest.fixture(autouse=True)
def no_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where nothing is set."""
    for variable in ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS", "DEVSTACK_SOURCES"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> dict[str, RecordedService]:
    """Stands in for the servers of the embedded source; Docker has none."""
    services = {name: RecordedService(name.lower()) for name in ("Postgres", "Kafka")}
    build = stack_module._build

    def build_recorded(
        name: str, source: str, progress: stack_module.Progress
    ) -> Service | None:
        if source == "environment":
            return build(name, source, progress)
        return services[name] if source == "embedded" else None

    monkeypatch.setattr(stack_module, "_build", build_recorded)
    return services


def test_the_environment_comes_first(
    embedded: dict[str, RecordedService], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", DATABASE_URL)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", SERVERS)
    with devstack() as stack:
        assert stack.environment == {
            "DATABASE_URL": DATABASE_URL,
            "KAFKA_BOOTSTRAP_SERVERS": SERVERS,
        }
    assert embedded["Postgres"].done == embedded["Kafka"].done == []


def test_each_service_is_looked_for_by_itself(
    embedded: dict[str, RecordedService], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", DATABASE_URL)
    with devstack() as stack:
        assert stack.database_url == DATABASE_URL
        assert stack.bootstrap_servers == "kafka"


def test_private_servers_leave_the_environment_alone(
    embedded: dict[str, RecordedService], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", DATABASE_URL)
    with devstack(sources=PRIVATE) as stack:
        assert stack.database_url == "postgres"


def test_what_was_started_is_closed_when_the_block_ends_and_when_it_raises(
    embedded: dict[str, RecordedService],
) -> None:
    with pytest.raises(RuntimeError), devstack():
        raise RuntimeError
    for service in embedded.values():
        assert service.done[0] == "start"
        assert service.done[-1] == "close"


def test_when_one_service_fails_the_other_is_closed(
    embedded: dict[str, RecordedService],
) -> None:
    embedded["Kafka"].fails = True
    with pytest.raises(DevstackError, match=r"No Kafka(.|\n)*embedded: out of luck"):
        devstack().__enter__()
    assert embedded["Postgres"].done[-1] == "close"


def test_a_variable_narrows_the_choice(
    embedded: dict[str, RecordedService], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEVSTACK_SOURCES", "environment,docker")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DevstackError, match="No Postgres: set DATABASE_URL"):
        devstack().__enter__()


def test_a_docker_without_an_engine_is_told(
    embedded: dict[str, RecordedService],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "docker").touch(0o755)
    monkeypatch.setenv("DEVSTACK_SOURCES", "docker")
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{free_port()}")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DevstackError, match="docker: is installed, but no engine"):
        devstack().__enter__()


def test_a_source_that_does_not_exist_is_told(
    embedded: dict[str, RecordedService], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEVSTACK_SOURCES", "docker, embeded")
    with pytest.raises(DevstackError, match="unknown source embeded; choose from env"):
        devstack().__enter__()


def test_progress_says_what_is_there(embedded: dict[str, RecordedService]) -> None:
    lines: list[str] = []
    with devstack(progress=lines.append):
        pass
    assert sorted(line.partition(" (")[0] for line in lines) == [
        "Kafka is ready",
        "Postgres is ready",
    ]


def test_a_start_that_is_interrupted_goes_to_no_other_source(
    embedded: dict[str, RecordedService], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    is_closed = threading.Event()

    class Interrupted(RecordedService):
        def start(self) -> None:
            interrupt_main_in("result")
            assert is_closed.wait(30)
            raise DevstackError("The server was closed.")

        def close(self) -> None:
            is_closed.set()

    def build(name: str, source: str, _: stack_module.Progress) -> Service | None:
        if name == "Kafka":
            return embedded["Kafka"]
        built.append(source)
        return Interrupted(source)

    monkeypatch.setattr(stack_module, "_build", build)
    lines: list[str] = []
    # The process that starts the tests may have left it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            devstack(sources=PRIVATE, progress=lines.append).__enter__()
    finally:
        signal.signal(signal.SIGINT, before)
    assert built == ["docker"]
    assert not [line for line in lines if line.startswith("Postgres")]


def interrupt_main_in(function: str) -> None:
    """Press Ctrl-C when the main thread is in this function."""
    main = threading.main_thread().ident
    assert main
    while function not in names(sys._current_frames()[main]):
        os.sched_yield()
    signal.pthread_kill(main, signal.SIGINT)


def names(frame: FrameType | None) -> list[str]:
    return [frame.f_code.co_name, *names(frame.f_back)] if frame else []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ((), "Running; Ctrl-C stops Postgres and Kafka and deletes their data."),
        (
            ("DATABASE_URL",),
            "Running; Ctrl-C stops Kafka and deletes its data. Not managed here:"
            " Postgres (DATABASE_URL).",
        ),
        (
            ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS"),
            "Running; Ctrl-C ends this command. Not managed here: Postgres"
            " (DATABASE_URL), Kafka (KAFKA_BOOTSTRAP_SERVERS).",
        ),
    ],
)
def test_the_command_says_what_ctrl_c_ends(
    embedded: dict[str, RecordedService],
    monkeypatch: pytest.MonkeyPatch,
    variables: tuple[str, ...],
    expected: str,
) -> None:
    for variable in variables:
        monkeypatch.setenv(variable, "elsewhere")
    with devstack() as stack:
        assert ending(stack) == expected


@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_a_server_of_others_is_not_touched(verb: str) -> None:
    service = ExternalService(DATABASE_URL, variable="DATABASE_URL")
    service.start()
    service.close()
    with pytest.raises(DevstackError, match="DATABASE_URL"):
        getattr(service, verb)()


def test_an_engine_that_does_not_answer_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{free_port()}")
    assert not does_engine_answer()


def test_processes_with_the_same_seed_choose_other_ports() -> None:
    ports = set()
    for _ in range(3):
        random.seed(1)
        ports.add(free_port())
    assert len(ports) > 1


def test_a_free_port_can_be_listened_on() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        assert server.getsockname()[1] < 32_000


def test_a_server_that_dies_is_not_waited_for() -> None:
    with pytest.raises(DevstackError, match=r"ended during its start\. the log"):
        wait_until(
            lambda: False, is_alive=lambda: False, explain=lambda: "the log", limit=60
        )


def test_a_silent_server_is_given_up() -> None:
    with pytest.raises(DevstackError, match=r"did not answer within 0 s\. the log"):
        wait_until(lambda: False, explain=lambda: "the log", limit=0.01)
