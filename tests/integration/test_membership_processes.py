"""Real processes in a real group: crashes, pauses, and orderly handovers."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Final
from uuid import uuid4

import pytest

from django_outbox.clock import boottime_ns
from tests.machine import nightly
from tests.processes import ROOT, Process, Processes

SECOND: Final = 1_000_000_000
"""In nanoseconds, as all moments are."""

SESSION_TIMEOUT = 3.0
HEARTBEAT_TIMEOUT = 1.4
HANDOVER = 2 * SECOND
"""What operators may rely on; 0.04 to 0.6 s on a machine that does nothing else."""


class Nodes(Processes):
    """The processes of one group."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__({**os.environ, "PYTHONPATH": str(ROOT)})
        self._arguments = (f"test-{uuid4()}", bootstrap_servers)

    def start(self) -> Process:
        """Start a process and wait until it stands in the group."""
        name = f"node-{len(self.all)}"
        script = (sys.executable, "-m", "tests.integration.elect")
        node = self.launch(name, *script, name, *self._arguments)
        node.wait_for("ready")
        return node

    def start_leader(self) -> Process:
        node = self.start()
        node.wait_for("leader_acquired")
        return node

    def stay_quiet(self, seconds: float, *, after: int) -> bool:
        """Whether nobody tells anything but that it is ready for so long."""
        threading.Event().wait(seconds)
        kinds = {e["event"] for n in self.all for e in n.all(after=after)}
        return kinds <= {"ready"}


@pytest.fixture
def nodes(bootstrap_servers: str) -> Iterator[Nodes]:
    with Nodes(bootstrap_servers) as nodes:
        yield nodes


@nightly
def test_processes_that_come_and_go_leave_the_leader_alone(nodes: Nodes) -> None:
    """Even one that crashed and is back before its session has expired."""
    nodes.start_leader()
    since = boottime_ns()
    crashing = nodes.start()
    nodes.start()
    crashing.kill()
    nodes.start().terminate()

    assert nodes.stay_quiet(SESSION_TIMEOUT + 1.0, after=since)


@nightly
def test_a_graceful_handover_takes_less_than_two_seconds(nodes: Nodes) -> None:
    leader, follower = nodes.start_leader(), nodes.start()
    asked = leader.terminate()
    revoked = leader.wait_for("leader_revoked", after=asked)
    acquired = follower.wait_for("leader_acquired", after=asked)

    assert revoked["boottime_ns"] < acquired["boottime_ns"] < asked + HANDOVER


def test_a_crash_is_followed_by_another_leader(nodes: Nodes) -> None:
    leader, follower = nodes.start_leader(), nodes.start()
    killed = leader.kill()
    acquired = follower.wait_for("leader_acquired", after=killed)

    vacancy = (acquired["boottime_ns"] - killed) / SECOND
    assert HEARTBEAT_TIMEOUT < vacancy < SESSION_TIMEOUT + 1.5


@nightly
def test_a_paused_leader_fences_itself_and_does_not_come_back(nodes: Nodes) -> None:
    leader, follower = nodes.start_leader(), nodes.start()
    paused = leader.pause()
    acquired = follower.wait_for("leader_acquired", after=paused)
    continued = leader.resume()
    fenced = leader.wait_for("leader_fenced", after=paused)

    assert fenced["boottime_ns"] >= continued
    assert fenced["trusted_until_ns"] < acquired["boottime_ns"]
    assert nodes.stay_quiet(3.0, after=fenced["boottime_ns"])


@nightly
def test_a_short_pause_changes_nothing(nodes: Nodes) -> None:
    leader = nodes.start_leader()
    paused = leader.pause()
    threading.Event().wait(0.4 * HEARTBEAT_TIMEOUT)
    leader.resume()

    assert nodes.stay_quiet(3.0, after=paused)


def test_a_process_alone_leads_again_after_a_long_pause(nodes: Nodes) -> None:
    leader = nodes.start()
    first = leader.wait_for("leader_acquired")
    paused = leader.pause()
    threading.Event().wait(2 * SESSION_TIMEOUT)
    leader.resume()
    fenced = leader.wait_for("leader_fenced", after=paused)
    again = leader.wait_for("leader_acquired", after=fenced["boottime_ns"])

    assert fenced["leader_id"] == first["leader_id"]
    assert again["leader_id"] != first["leader_id"]
