"""A worker's life from start to exit code, on fakes of table and log."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import pytest

from django_outbox.clock import boottime
from django_outbox.devstack.service import free_port
from django_outbox.election.solo import SoloMembership
from django_outbox.events import Event, LeaderAcquired, Observer, Ready
from django_outbox.exceptions import ConfigurationError, WrongOutbox
from django_outbox.harvester import process
from django_outbox.harvester.adapters import Adapters
from django_outbox.harvester.harvester import Harvester
from django_outbox.harvester.process import rare_garbage_collection, run
from django_outbox.message.record import Backlog, Identity, Numbering
from django_outbox.observability import endpoints
from django_outbox.observability.endpoints import served
from django_outbox.relay.availability import Availability
from django_outbox.relay.memory_marks import MemoryMarks
from django_outbox.settings.options import OutboxSettings
from django_outbox.shutdown import StopSignals
from tests.fakes.producer import InMemoryLog, InMemoryProducer
from tests.fakes.unmarked import InMemoryUnmarked
from tests.machine import IN_BACKGROUND, do_without
from tests.services import fetch
from tests.waiting import eventually


def _not_in_use(*_: object) -> NoReturn:
    raise AssertionError("only with DELIVERY = exactly-once")


class Worker:
    """The fakes, and what to do on an event."""

    def __init__(self) -> None:
        self.outbox = InMemoryUnmarked()
        self.log = InMemoryLog()
        self.membership: Callable[[], Any] = SoloMembership
        self.on_event: Callable[[Event], None] = lambda _event: None
        self.send: Callable[[Event], int] = lambda _event: 0
        self.seen: OutboxSettings | None = None
        self._made: list[Harvester] = []

    def make(self, observers: Sequence[Observer], options: OutboxSettings) -> Harvester:
        self.seen = options
        harvester = Harvester(
            name="worker",
            options=options,
            adapters=Adapters(
                table=lambda _concern: self.outbox,
                reading=lambda *_: MemoryMarks(
                    self.outbox, clock=boottime, timeline=self.outbox.database_timeline
                ),
                producer=lambda _: InMemoryProducer(self.log),
                transactions=_not_in_use,
                membership=self.membership,
            ),
            observers=[*observers, self.on_event],
            send=self.send,
        )
        self._made.append(harvester)
        return harvester

    def end(self) -> None:
        """Wait for a harvester that was left behind: it would log into other tests."""
        for harvester in self._made:
            harvester.stop()
            # The test has seen its error already, if it has one.
            with suppress(Exception):
                harvester.join(60)
            assert not harvester.is_alive

    def run(self, *, drain: bool = False, **options: Any) -> int:
        return run(
            self.make,
            OutboxSettings(**options),
            log_format="json",
            level=logging.INFO,
            drain=drain,
        )


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.end()
    # What a run leaves frozen would surprise the modules that are imported later.
    gc.unfreeze()


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes with which the process would have exited at once."""
    codes: list[int] = []

    def exit_at_once(code: int) -> NoReturn:
        codes.append(code)
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", exit_at_once)
    return codes


def kinds(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line)["event"] for line in lines]


def send_on(kind: type[Event], number: signal.Signals) -> Callable[[Event], None]:
    def observe(event: Event) -> None:
        if isinstance(event, kind):
            os.kill(os.getpid(), number)

    return observe


def test_a_signal_while_the_event_is_locked_does_not_hang() -> None:
    """It may interrupt the main thread inside `stop.wait()` or `stop.set()`."""
    with StopSignals() as wanted:
        with wanted.stop._cond:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGTERM)
        assert wanted.stop.wait(10)


STOPPED_BY_INT = """
import os, signal
from django_outbox.shutdown import StopSignals
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
with StopSignals() as wanted:
    os.kill(os.getpid(), signal.SIGINT)
    assert wanted.stop.wait(10)
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""


def test_sigint_counts_where_it_was_ignored_from_the_start() -> None:
    subprocess.run(
        [*IN_BACKGROUND, sys.executable, "-c", STOPPED_BY_INT], check=True, timeout=60
    )


LEFT = """
import atexit, threading
from django_outbox.shutdown import StopSignals
atexit.register(print, "a normal exit")
with StopSignals() as wanted:
    hangs = threading.Event().wait
    threading.Thread(target=hangs, name="{name}", daemon=True).start()
    raise SystemExit(wanted.leave(3))
"""


@pytest.mark.parametrize(
    ("name", "said"), [("outbox-doctor", ""), ("of-the-app", "a normal exit\n")]
)
def test_a_thread_that_hangs_in_a_client_is_not_taken_apart(
    name: str, said: str
) -> None:
    """A normal exit of the process would clear OpenSSL under its feet."""
    ended = subprocess.run(
        [sys.executable, "-c", LEFT.format(name=name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, said, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(
    worker: Worker, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    before = signal.getsignal(number)
    worker.on_event = send_on(LeaderAcquired, number)
    assert worker.run() == 0
    assert kinds(capsys) == ["ready", "leader_acquired", "leader_revoked", "stopped"]
    assert signal.getsignal(number) is before


class OtherOutbox(InMemoryUnmarked):
    """A table that says which cluster's it is, if it can be reached."""

    found = Numbering("0", "0", "outbox_id_seq", 1, 1)

    def numbering(self) -> Numbering:
        self.ping()
        return self.found


def test_a_database_of_another_cluster_is_refused_before_anything_starts(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.outbox = OtherOutbox()
    with pytest.raises(ConfigurationError, match=r"CLUSTER_ID: .*outbox cluster init"):
        worker.run(CLUSTERS_COUNT=2)
    assert kinds(capsys) == []


def test_a_database_that_is_the_clusters_is_harvested(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.outbox = outbox = OtherOutbox()
    outbox.found = Numbering("1", "1", "outbox_id_seq", 2, 3)
    worker.on_event = send_on(LeaderAcquired, signal.SIGTERM)
    assert worker.run(CLUSTER_ID=1, CLUSTERS_COUNT=2) == 0
    assert kinds(capsys)[:2] == ["ready", "leader_acquired"]


def test_a_database_that_is_away_is_waited_for_and_then_looked_at(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.outbox = outbox = OtherOutbox()
    outbox.is_down = True
    lost = Availability.lost

    def lost_once(self: Availability, *arguments: Any) -> float:
        outbox.is_down = False
        return lost(self, *arguments)

    monkeypatch.setattr(Availability, "lost", lost_once)
    with pytest.raises(ConfigurationError, match="CLUSTER_ID"):
        worker.run(CLUSTERS_COUNT=2)


def test_a_signal_ends_the_wait_for_a_database(
    worker: Worker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker.outbox = outbox = OtherOutbox()
    outbox.is_down = True
    lost = Availability.lost

    def lost_and_stopped(self: Availability, *arguments: Any) -> float:
        os.kill(os.getpid(), signal.SIGTERM)
        return lost(self, *arguments)

    monkeypatch.setattr(Availability, "lost", lost_and_stopped)
    assert worker.run(CLUSTERS_COUNT=2) == 0
    assert kinds(capsys) == ["stopped"]


def test_a_database_that_is_away_is_waited_for_until_it_says_which_outbox_it_is(
    worker: Worker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker.outbox.is_down = True
    lost = Availability.lost

    def lost_once(self: Availability, *arguments: Any) -> float:
        worker.outbox.is_down = False
        return lost(self, *arguments)

    monkeypatch.setattr(Availability, "lost", lost_once)
    worker.on_event = send_on(LeaderAcquired, signal.SIGTERM)
    assert worker.run() == 0
    assert kinds(capsys) == ["ready", "leader_acquired", "leader_revoked", "stopped"]


def test_a_signal_ends_the_wait_for_a_name(
    worker: Worker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker.outbox.is_down = True
    lost = Availability.lost

    def lost_and_stopped(self: Availability, *arguments: Any) -> float:
        os.kill(os.getpid(), signal.SIGTERM)
        return lost(self, *arguments)

    monkeypatch.setattr(Availability, "lost", lost_and_stopped)
    assert worker.run() == 0
    assert kinds(capsys) == ["stopped"]


class Nameless(InMemoryUnmarked):
    """A table as goharvest makes it."""

    def identity(self) -> None:  # type: ignore[override]
        """Say nothing."""


def test_a_table_that_gives_no_names_ends_it_with_one_line(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    worker.outbox = Nameless()
    with pytest.raises(ConfigurationError, match=r"^LEADER_TOPIC and LEADER_GROUP are"):
        worker.run()
    assert "LEADER_TOPIC" not in caplog.text
    worker.on_event = send_on(LeaderAcquired, signal.SIGTERM)
    assert worker.run(LEADER_TOPIC="leaders") == 0


class Replaced(InMemoryUnmarked):
    """A database that holds another outbox after some time."""

    def backlog(self) -> Backlog:
        self._identity = Identity("aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", "0/0")
        return super().backlog()


def test_an_outbox_that_became_another_one_is_led_no_more(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.outbox = Replaced()
    with pytest.raises(WrongOutbox, match="Restart this process"):
        worker.run(METER_INTERVAL=0.1)
    assert kinds(capsys)[-2:] == ["leader_revoked", "stopped"]


def test_an_application_starts_at_once_while_its_database_is_away(
    worker: Worker,
) -> None:
    worker.outbox.is_down = True
    leads = threading.Event()
    worker.on_event = lambda event: (
        leads.set() if isinstance(event, LeaderAcquired) else None
    )
    with worker.make([], OutboxSettings()) as harvester:
        assert harvester.is_alive
        assert not leads.is_set()
        worker.outbox.is_down = False
        assert leads.wait(30)


def test_an_application_finds_the_reason_in_its_log(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    worker.outbox = Nameless()
    harvester = worker.make([], OutboxSettings())
    harvester.start()
    with pytest.raises(ConfigurationError):
        harvester.join(20)
    (line,) = [r for r in caplog.records if r.levelname == "ERROR"]
    assert "LEADER_TOPIC and LEADER_GROUP are not set" in line.getMessage()
    assert line.exc_info is None


def test_a_signal_before_it_has_started_ends_it_in_order(
    worker: Worker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make = worker.make

    def make_late(*arguments: Any) -> Harvester:
        os.kill(os.getpid(), signal.SIGTERM)
        return make(*arguments)

    monkeypatch.setattr(worker, "make", make_late)
    assert worker.run() == 0
    assert kinds(capsys)[-1] == "stopped"


def test_drain_ends_when_the_table_is_empty(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(25):
        worker.outbox.insert("topic", f"key-{number % 3}")
    assert worker.run(drain=True) == 0
    assert len(worker.log.messages) == 25
    assert kinds(capsys)[-1] == "stopped"


def test_events_on_a_terminal_are_not_mixed_with_a_bar(
    worker: Worker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    worker.outbox.insert("topic", "key")
    assert worker.run(drain=True) == 0
    assert kinds(capsys)[-1] == "stopped"


def test_a_signal_ends_a_drain_that_gets_nowhere(worker: Worker) -> None:
    worker.log.is_down = True
    worker.outbox.insert("topic", "key")
    worker.on_event = send_on(LeaderAcquired, signal.SIGTERM)
    assert worker.run(drain=True, DRAIN_TIMEOUT=0.1) == 0
    assert len(worker.outbox.records()) == 1


def test_a_signal_ends_a_drain_whose_table_hangs(
    worker: Worker, exits: list[int]
) -> None:
    may_answer = threading.Event()

    class Hanging(InMemoryUnmarked):
        def backlog(self) -> Backlog:
            if threading.current_thread().name == "outbox-drain":
                os.kill(os.getpid(), signal.SIGTERM)
                may_answer.wait(30)
            return super().backlog()

    worker.outbox = Hanging()
    began = time.monotonic()
    with pytest.raises(SystemExit):
        worker.run(drain=True)
    took = time.monotonic() - began
    may_answer.set()
    assert exits == [0]
    assert took < 20


def test_a_drain_waits_for_a_table_that_is_away(worker: Worker) -> None:
    worker.outbox.insert("topic", "key")
    worker.outbox.is_down = True
    comes_back = threading.Timer(0.5, setattr, [worker.outbox, "is_down", False])
    comes_back.start()
    assert worker.run(drain=True) == 0
    assert len(worker.log.messages) == 1


def test_a_thread_that_dies_ends_it_with_1(
    worker: Worker,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(event: Event) -> int:
        raise LookupError("what went wrong")

    worker.send = fail
    assert worker.run() == 1
    assert kinds(capsys)[-1] == "stopped"
    assert "what went wrong" in caplog.text


def test_what_hangs_is_left_behind(
    worker: Worker,
    exits: list[int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client library that never returns does not keep the process."""
    may_leave = threading.Event()

    class Hanging(SoloMembership):
        def leave(self) -> None:
            may_leave.wait(10)
            super().leave()

    worker.membership = Hanging
    worker.on_event = send_on(Ready, signal.SIGTERM)
    monkeypatch.setattr(process, "CLOSE_GRACE", 0.1)
    with pytest.raises(SystemExit):
        worker.run(DRAIN_TIMEOUT=0.1)
    may_leave.set()
    assert exits == [0]
    assert kinds(capsys)[-1] == "stopped"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_the_second_signal_exits_at_once(
    exits: list[int], number: signal.Signals, code: int
) -> None:
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.stop.wait(10)
        assert exits == []
        with pytest.raises(SystemExit):
            os.kill(os.getpid(), number)
    assert exits == [code]


def test_an_address_in_use_is_named(worker: Worker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=f"METRICS_ADDRESS.*{address}"):
            worker.run(METRICS_ADDRESS=address)


@pytest.mark.parametrize("host", ["[::1]", "[::]"])
def test_health_is_served_over_ipv6(host: str) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as free:
            port = free.getsockname()[1]
    except OSError as error:
        do_without(f"no IPv6: {error}")
    with served(
        "METRICS_ADDRESS",
        f"{host}:{port}",
        is_alive=lambda: True,
        reasons=list,
        metrics=None,
    ):
        assert fetch(f"[::1]:{port}", "/readyz") == (200, "ok\n")


@pytest.mark.parametrize("host", ["x" * 64, "caf\u00e9.x" + "y" * 64])
def test_a_name_that_no_host_can_have_is_named(host: str) -> None:
    address = f"{host}:{free_port()}"
    with (
        pytest.raises(ConfigurationError, match=r"METRICS_ADDRESS: .* cannot be bound"),
        served(
            "METRICS_ADDRESS",
            address,
            is_alive=lambda: True,
            reasons=list,
            metrics=None,
        ),
    ):
        pass


@contextmanager
def health() -> Iterator[tuple[str, int]]:
    """Yield where health is served."""
    port = free_port()
    with served(
        "METRICS_ADDRESS",
        f"127.0.0.1:{port}",
        is_alive=lambda: True,
        reasons=list,
        metrics=None,
    ):
        yield "127.0.0.1", port


def test_a_client_that_asks_nothing_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each one keeps a thread and a descriptor."""
    monkeypatch.setattr(endpoints._QuietHandler, "timeout", 0.1)
    with health() as address, socket.create_connection(address) as client:
        client.settimeout(60)
        assert client.recv(1) == b""


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01 no HTTP\r\n\r\n"])
def test_a_probe_of_the_port_leaves_nothing_on_standard_error(
    sent: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """Load balancers connect and reset; others send what is no HTTP."""
    before = threading.active_count()
    with health() as address:
        with socket.create_connection(address) as client:
            client.sendall(sent)
            linger = struct.pack("ii", 1, 0)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        assert fetch(f"{address[0]}:{address[1]}", "/livez")[0] == 200
        eventually(lambda: threading.active_count() == before + 1)
    assert capfd.readouterr().err == ""


def test_health_is_served_without_the_package_of_metrics(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "django_outbox.observability.metrics", None)
    address = f"127.0.0.1:{free_port()}"
    answers: dict[str, tuple[int, str]] = {}

    def ask(event: Event) -> None:
        if isinstance(event, LeaderAcquired):
            for path in ("/livez", "/readyz", "/healthz", "/metrics", "/else"):
                answers[path] = fetch(address, path)
            os.kill(os.getpid(), signal.SIGTERM)

    worker.on_event = ask
    assert worker.run(METRICS_ADDRESS=address) == 0
    assert {path: status for path, (status, _) in answers.items()} == {
        "/livez": 200,
        "/readyz": 200,
        "/healthz": 200,
        "/metrics": 501,
        "/else": 404,
    }
    assert "django-outbox-kafka[metrics]" in answers["/metrics"][1]
    assert "django-outbox-kafka[metrics]" in caplog.text


def test_metrics_are_read_also_before_the_outbox_is_known(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_port()}"
    looked = threading.Semaphore(0)
    is_known = threading.Event()
    backlog, identity = worker.outbox.backlog, worker.outbox.identity

    def counted() -> Backlog:
        looked.release()
        return backlog()

    def asked() -> Identity:
        # The watch looks at a harvester that has started and has no relay yet.
        for _ in range(3):
            assert looked.acquire(timeout=60)
        is_known.set()
        return identity()

    def ask(event: Event) -> None:
        if isinstance(event, LeaderAcquired):
            assert is_known.is_set()
            for _ in range(3):
                assert looked.acquire(timeout=60)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(worker.outbox, "backlog", counted)
    monkeypatch.setattr(worker.outbox, "identity", asked)
    worker.on_event = ask
    assert worker.run(METRICS_ADDRESS=address, METER_INTERVAL=0.02) == 0


def test_the_settings_reach_the_harvester(worker: Worker) -> None:
    worker.on_event = send_on(Ready, signal.SIGTERM)
    worker.run(METER_INTERVAL=7.0)
    assert worker.seen is not None
    assert worker.seen.METER_INTERVAL == 7.0


def test_what_is_old_stays_out_of_the_collectors_sight_to_the_end() -> None:
    thresholds = gc.get_threshold()
    gc.unfreeze()

    with rare_garbage_collection():
        assert gc.get_threshold() > thresholds

    try:
        # The interpreter's own end looks through all that is not frozen.
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold() == thresholds
    finally:
        gc.unfreeze()
