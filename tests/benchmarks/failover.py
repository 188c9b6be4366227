"""
How long a table has no leader: after a crash, a shutdown and a pause.

Two harvesters under the default settings: one leads, one stands by. The time
runs from the signal to the other one's leadership; a new process then stands
by, and the next round begins. A rolling restart may end a leader as soon as the
new process is ready, which is slower than a shutdown at any other time: both are
measured.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import count
from uuid import uuid4

from django_outbox.settings.options import OutboxSettings

from ..processes import Process
from ..waiting import eventually
from .session import Session
from .sides import AT_LEAST_ONCE
from .workload import empty

NAME = "failover"
SIDE = "harvester"
SHUTDOWN, ROLLING = "SIGTERM", "SIGTERM, the other one has just joined"
GRACEFUL = (SHUTDOWN, ROLLING)
JOIN_INTERVAL = 2.0
"""Seconds after which librdkafka, which has joined a group, joins again at once."""


def run(session: Session) -> None:
    empty()
    timeout = f"session time-out {OutboxSettings().SESSION_TIMEOUT:g} s"
    for case in (*GRACEFUL, "kill -9", "SIGSTOP"):
        for seconds in takeovers(case, session.scale.takeovers):
            session.book.note(
                NAME,
                case if case in GRACEFUL else f"{case}, {timeout}",
                *(SIDE, seconds, "s"),
                figure="without a leader",
            )


def takeovers(case: str, times: int) -> list[float]:
    """End so many leaders in one way; return how long nobody led after each."""
    group, numbers, taken = f"bench-{uuid4()}", count(1), []

    with ExitStack() as started:

        def start() -> Process:
            name = f"harvester-{next(numbers)}"
            harvester = AT_LEAST_ONCE.start(name=name, group=group)
            started.callback(harvester.end)
            return harvester

        leader, standby = start(), start()
        eventually(lambda: leader.leads or standby.leads)
        for _ in range(times):
            if standby.leads:
                leader, standby = standby, leader
            standby.wait_for("ready", timeout=60)
            if case == SHUTDOWN:
                time.sleep(JOIN_INTERVAL)  # the subject: a standby of some time
            ended_at = end(leader, case)
            acquired = standby.wait_for("leader_acquired", after=ended_at, timeout=120)
            taken.append((acquired["boottime_ns"] - ended_at) / 1e9)
            if case == "SIGSTOP":
                leader.resume()
                leader.wait_for("leader_fenced", "leader_revoked", after=ended_at)
            leader.end()
            leader, standby = standby, start()
    return taken


def end(leader: Process, case: str) -> int:
    """End a leader; return the moment."""
    if case in GRACEFUL:
        return leader.terminate()
    return leader.kill() if case == "kill -9" else leader.pause()
