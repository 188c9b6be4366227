"""Many faults in a row on two processes, neither of which may grow."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

import psutil
import pytest

from ...machine import nightly
from ...processes import Process
from ...waiting import eventually
from ..auditing import audit, deliveries
from ..harvesters import BY_DAY
from . import injected_faults as faults
from .conftest import SceneOf
from .scene import RELAYS, Scene
from .trial import check

ROUNDS: Final = 5
"""In each of them, each fault happens once: about seven minutes in all."""

WARM: Final = 2
"""Rounds after which a process has all that it ever needs."""

BURST: Final = 2_000
"""Records at the beginning of each fault."""

SAID: Final = 10
"""Times that the leader of a shard may warn of the same thing in one fault: some strike
five times, and a connection may meet it when another one is back."""

SLACK: Final = 10
"""Threads, descriptors or sessions that come and go with a term and with connections.
One more after each fault would be forty more from the warm rounds to the last."""

GROWTH: Final = 1.3
"""Of the memory of both processes. It grows by a half in some thirty faults, as each
thread has its own heap, and then stays."""

FAULTS: Final[tuple[faults.Act, ...]] = (
    faults.pause_leader,
    faults.pause_briefly,
    faults.reset_connections,
    faults.slow_network,
    faults.sliced_network,
    faults.crash_database,
    faults.end_sessions,
    faults.lock_table,
    faults.open_transaction,
    faults.crash_broker,
    faults.lack_replicas,
    faults.send_poison,
    faults.delay_for_a_while,
)
"""Those in which no process ends."""

SESSIONS: Final = """
SELECT count(*), count(*) FILTER (
    WHERE state LIKE 'idle in%' AND state_change < now() - interval '1 second'
)
FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'outbox %'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What both processes hold between two rounds."""

    threads: int
    descriptors: int
    sessions: int
    megabytes: float
    """Of memory that no other process shares."""


@nightly
@pytest.mark.parametrize("relay", BY_DAY)
def test_nothing_grows_through_many_faults(scene_of: SceneOf, relay: str) -> None:
    used: list[Usage] = []
    with scene_of({**RELAYS[relay], "OUTBOX_POISON_POLICY": "park"}, 1) as scene:
        scene.writers.wait_for(100)
        for _ in range(ROUNDS):
            for fault in scene.chance.sample(FAULTS, len(FAULTS)):
                _befall(scene, fault)
            used.append(_settled(scene))

    found = audit(scene.writers.ledger, deliveries(scene.topics.read(scene.topic)))
    check(scene, found)
    if relay == "ledger":
        assert found.duplicates == 0
    warm, last = used[:WARM], used[-1]
    for count in ("threads", "descriptors", "sessions"):
        most = max(getattr(usage, count) for usage in warm)
        assert getattr(last, count) <= most + SLACK, used
    assert last.megabytes <= GROWTH * warm[-1].megabytes, used


def _befall(scene: Scene, fault: faults.Act) -> None:
    """Let a fault happen, and wait until what was written before has been sent."""
    eventually(lambda: scene.leader.leads or scene.standby.leads, what="a leader")
    if not scene.leader.leads:
        scene.leader, scene.standby = scene.standby, scene.leader
    logged = [(process, len(process.log)) for process in _both(scene)]
    scene.writers.burst(BURST)
    scene.table.wait_until_busy()
    fault(scene)
    ((last,),) = scene.table.execute("SELECT max(id) FROM {outbox}")
    if last is not None:
        scene.table.wait_until_empty(up_to=last)
    for process, lines in logged:
        for text, count in _warnings(process.log[lines:]).items():
            assert count <= SAID * scene.shards, (
                f"{fault.__name__}: {count} times: {text}"
            )


def _settled(scene: Scene) -> Usage:
    """Return what the processes hold, once no session has a transaction left open."""

    def sessions() -> int:
        ((count, idle),) = scene.table.execute(SESSIONS)
        return 0 if idle else int(count)

    count = eventually(sessions, what="no session idle in transaction")
    found = [psutil.Process(process.pid) for process in _both(scene)]
    return Usage(
        threads=sum(process.num_threads() for process in found),
        descriptors=sum(process.num_fds() for process in found),
        sessions=count,
        megabytes=sum(process.memory_full_info().uss for process in found) / 2**20,
    )


def _warnings(lines: list[str]) -> Counter[str]:
    """Count warnings and errors that differ in numbers at most."""
    return Counter(
        re.sub(r"[0-9]+", "#", line)
        for line in lines
        if "WARNING" in line or "ERROR" in line
    )


def _both(scene: Scene) -> tuple[Process, Process]:
    return scene.leader, scene.standby
