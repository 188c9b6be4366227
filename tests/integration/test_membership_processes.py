"""Real processes in a real group: crashes, pauses, and orderly handovers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from django_outbox.clock import boottime

SESSION_TIMEOUT = 3.0
HEARTBEAT_TIMEOUT = 1.0
HANDOVER = 2.0
"""What operators may rely on; 0.04 to 0.6 s on a machine that does nothing else."""


class Nodes:
    """The processes of one group, and all that they have told."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._group = f"test-{uuid4()}"
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._told: list[dict[str, Any]] = []
        self._changed = threading.Condition()

    def start(self, name: str) -> None:
        """Start a process and wait until it stands in the group."""
        script = [sys.executable, "-m", "tests.integration.elect"]
        process = subprocess.Popen(
            [*script, name, self._group, self._servers],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._processes[name] = process
        began = boottime()
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        self.wait("ready", name, since=began)

    def signal(self, name: str, signum: signal.Signals) -> float:
        """Send a signal; return when."""
        now = boottime()
        self._processes[name].send_signal(signum)
        return now

    def wait(self, event: str, *names: str, since: float) -> dict[str, Any]:
        """Wait until one of these processes tells of such an event."""

        def is_it(line: dict[str, Any]) -> bool:
            is_named = line["name"] in names and line["event"] == event
            return is_named and line["at"] >= since

        with self._changed:
            found = self._changed.wait_for(lambda: self._find(is_it), timeout=30)
        assert found, f"no {event} of {names} among {self._told}"
        return found

    def told(self, *, since: float) -> list[tuple[str, str]]:
        with self._changed:
            return [(t["name"], t["event"]) for t in self._told if t["at"] >= since]

    def stays_quiet(self, seconds: float, *, since: float) -> bool:
        """Whether nobody tells anything but that it is ready for so long."""
        with self._changed:
            return not self._changed.wait_for(
                lambda: self._find(
                    lambda line: line["at"] >= since and line["event"] != "ready"
                ),
                timeout=seconds,
            )

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def _find(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        return next((line for line in self._told if is_it(line)), None)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                with self._changed:
                    self._told.append(json.loads(line))
                    self._changed.notify_all()


@pytest.fixture
def nodes(bootstrap_servers: str) -> Iterator[Nodes]:
    nodes = Nodes(bootstrap_servers)
    yield nodes
    nodes.end()


def test_processes_that_come_and_go_leave_the_leader_alone(nodes: Nodes) -> None:
    """Even one that crashed and is back before its session has expired."""
    nodes.start("a")
    nodes.wait("leader_acquired", "a", since=0.0)
    since = boottime()
    nodes.start("b")
    nodes.start("c")
    nodes.signal("b", signal.SIGKILL)
    nodes.start("d")
    nodes.signal("d", signal.SIGTERM)

    assert nodes.stays_quiet(SESSION_TIMEOUT + 1.0, since=since)


def test_a_graceful_handover_takes_less_than_two_seconds(nodes: Nodes) -> None:
    nodes.start("a")
    nodes.wait("leader_acquired", "a", since=0.0)
    nodes.start("b")
    asked = nodes.signal("a", signal.SIGTERM)
    revoked = nodes.wait("leader_revoked", "a", since=asked)
    acquired = nodes.wait("leader_acquired", "b", since=asked)

    assert revoked["at"] < acquired["at"] < asked + HANDOVER


def test_a_crash_is_followed_by_another_leader(nodes: Nodes) -> None:
    nodes.start("a")
    nodes.wait("leader_acquired", "a", since=0.0)
    nodes.start("b")
    killed = nodes.signal("a", signal.SIGKILL)
    acquired = nodes.wait("leader_acquired", "b", since=killed)

    assert acquired["at"] > killed + HEARTBEAT_TIMEOUT
    assert acquired["at"] < killed + SESSION_TIMEOUT + 1.5


def test_a_paused_leader_fences_itself_and_does_not_come_back(nodes: Nodes) -> None:
    nodes.start("a")
    nodes.wait("leader_acquired", "a", since=0.0)
    nodes.start("b")
    paused = nodes.signal("a", signal.SIGSTOP)
    acquired = nodes.wait("leader_acquired", "b", since=paused)
    continued = nodes.signal("a", signal.SIGCONT)
    fenced = nodes.wait("leader_fenced", "a", since=paused)

    assert fenced["at"] >= continued
    assert fenced["trusted_until"] < acquired["at"]
    assert nodes.stays_quiet(3.0, since=fenced["at"] + 1e-6)


def test_a_short_pause_changes_nothing(nodes: Nodes) -> None:
    nodes.start("a")
    nodes.wait("leader_acquired", "a", since=0.0)
    paused = nodes.signal("a", signal.SIGSTOP)
    threading.Event().wait(0.4 * HEARTBEAT_TIMEOUT)
    nodes.signal("a", signal.SIGCONT)

    assert nodes.stays_quiet(3.0, since=paused)


def test_a_process_alone_leads_again_after_a_long_pause(nodes: Nodes) -> None:
    nodes.start("a")
    first = nodes.wait("leader_acquired", "a", since=0.0)
    paused = nodes.signal("a", signal.SIGSTOP)
    threading.Event().wait(2 * SESSION_TIMEOUT)
    nodes.signal("a", signal.SIGCONT)
    fenced = nodes.wait("leader_fenced", "a", since=paused)
    again = nodes.wait("leader_acquired", "a", since=fenced["at"])

    assert fenced["leader_id"] == first["leader_id"]
    assert again["leader_id"] != first["leader_id"]
