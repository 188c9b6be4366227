"""
The faults, each with what it may do at most.

A fault is a function that lets it happen to a scene, waits until it is over, and
returns how many seconds nothing can have come into the topic because of it alone.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import psutil

from django_outbox.clock import boottime_ns
from django_outbox.election.settings import ElectionSettings

from ..harvesters import HEARTBEAT_TIMEOUT, SESSION_TIMEOUT
from .scene import Scene

Act: TypeAlias = Callable[[Scene], float]

TAKEOVER: Final = SESSION_TIMEOUT + 3
"""Seconds until a successor sends."""

DEADLINE: Final = 3.0
"""Seconds until a leader without its database resigns, where that is tested."""

DELAY: Final = 2.0
"""Seconds on each way, longer than a heartbeat may take."""

CANDIDATE_TIMEOUT: Final = ElectionSettings(name="").candidate_timeout
"""Seconds until a process leaves that the group has chosen, and that proves nothing."""

AWAY: Final = 20.0
"""Seconds without any broker."""

NS: Final = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault and its bounds; what never may happen is not said here."""

    number: str
    """In the matrix."""
    text: str
    act: Act
    back_within: float
    """Seconds in which nothing may come into the topic beyond the fault's own."""
    windows: int = 0
    """Multiples of W that may come twice, unless delivery is exactly-once."""
    keeps_leader: bool = False
    """No other process may become the leader."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the harvesters."""

    @property
    def name(self) -> str:
        """In the name of a test: `F2-crash_leader`."""
        return f"{self.number}-{self.act.__name__}"


def restart_each(scene: Scene) -> float:
    for old in (scene.leader, scene.standby):
        scene.harvesters.start().wait_for("ready")
        old.terminate()
        assert old.exit_code() == 0
    return 0


def crash_leader(scene: Scene) -> float:
    scene.kill(scene.leader)
    return 0


def crash_standby(scene: Scene) -> float:
    scene.kill(scene.standby)
    return 0


def pause_leader(scene: Scene) -> float:
    scene.pause(scene.leader)
    _wait(2 * SESSION_TIMEOUT)
    resumed_at = scene.leader.resume()
    scene.leader.wait_for("leader_fenced", "leader_revoked", after=resumed_at)
    return 0


def pause_briefly(scene: Scene) -> float:
    scene.leader.pause()
    _wait(HEARTBEAT_TIMEOUT / 2)
    scene.leader.resume()
    return HEARTBEAT_TIMEOUT / 2


def starve(scene: Scene) -> float:
    psutil.Process(scene.leader.pid).nice(19)
    busy = [sys.executable, "-S", "-c", "while True: pass"]
    others = [subprocess.Popen(busy) for _ in range(6)]
    _wait(2 * SESSION_TIMEOUT)
    for other in others:
        other.kill()
        other.wait()
    return 0


def cut_from_kafka(scene: Scene) -> float:
    return _cut_from_kafka(scene)


def cut_answers_of_kafka(scene: Scene) -> float:
    return _cut_from_kafka(scene, requests=False)


def reset_connections(scene: Scene) -> float:
    for _ in range(5):
        scene.to_kafka.reset()
        _wait(scene.chance.uniform(1, 2) * HEARTBEAT_TIMEOUT)
    return 0


def slow_network(scene: Scene) -> float:
    scene.to_kafka.delay = 0.1
    _wait(2 * SESSION_TIMEOUT)
    scene.to_kafka.heal()
    return 0


def sliced_network(scene: Scene) -> float:
    scene.to_kafka.piece = 100
    _wait(SESSION_TIMEOUT)
    scene.to_kafka.heal()
    return 0


def cut_from_database(scene: Scene) -> float:
    scene.to_database.hold()
    scene.standby.wait_for("leader_acquired")
    scene.to_database.heal()
    return 0


def crash_database(scene: Scene) -> float:
    return _lasting(scene.servers.postgres.kill, scene.servers.postgres.start)


def end_sessions(scene: Scene) -> float:
    for _ in range(5):
        scene.table.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'outbox %'"
        )
        _wait(1)
    return 0


def lock_table(scene: Scene) -> float:
    with scene.table.connect() as connection, connection.transaction():
        return _lasting(
            lambda: connection.execute("LOCK TABLE outbox"),
            lambda: connection.execute("SELECT pg_sleep(3)"),
        )


def open_transaction(scene: Scene) -> float:
    with scene.table.connect() as connection, connection.transaction():
        # With a transaction id of its own, it also keeps old rows from being removed.
        connection.execute("SELECT pg_current_xact_id(), pg_sleep(10)")
    return 0


def crash_broker(scene: Scene) -> float:
    kafka = scene.servers.kafka

    def stay_away() -> None:
        used = scene.leader.cpu_seconds()
        _wait(AWAY)
        assert scene.leader.cpu_seconds() - used < 0.2 * AWAY
        kafka.start()

    return _lasting(kafka.kill, stay_away)


def send_poison(scene: Scene) -> float:
    scene.table.insert(scene.topic, "sick", "x" * 3_000_000, count=3)
    return 0


def delay_for_a_while(scene: Scene) -> float:
    scene.to_kafka.delay = DELAY
    _wait(2 * SESSION_TIMEOUT)
    scene.to_kafka.heal()
    return 2 * SESSION_TIMEOUT


def delay_until_another_leads(scene: Scene) -> float:
    scene.to_kafka.delay = DELAY
    scene.standby.wait_for("leader_acquired")
    scene.to_kafka.heal()
    return 0


def take_descriptors(scene: Scene) -> float:
    process = psutil.Process(scene.leader.pid)
    process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds(),) * 2)
    scene.to_kafka.reset()
    scene.to_database.reset()
    return 0


FAULTS: Final = (
    Fault(
        number="F1",
        text="rolling restart of all processes (SIGTERM)",
        act=restart_each,
        back_within=4,
    ),
    Fault(
        number="F2",
        text="the leader crashes (kill −9)",
        act=crash_leader,
        back_within=TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F3",
        text="a standby crashes",
        act=crash_standby,
        back_within=2,
        keeps_leader=True,
    ),
    Fault(
        number="F4",
        text="the leader stands still for two sessions, and wakes up",
        act=pause_leader,
        back_within=TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F5",
        text="the leader stands still for half of `HEARTBEAT_TIMEOUT`",
        act=pause_briefly,
        back_within=1,
        keeps_leader=True,
    ),
    Fault(
        number="F6",
        text="the leader gets hardly any processor time, for two sessions",
        act=starve,
        back_within=TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F7",
        text="nothing passes between leader and Kafka",
        act=cut_from_kafka,
        back_within=TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F8",
        text="requests reach Kafka, its answers are lost",
        act=cut_answers_of_kafka,
        # The group may hear of the old leader for one more session.
        back_within=TAKEOVER + SESSION_TIMEOUT,
        windows=1,
    ),
    Fault(
        number="F9",
        text="all connections to Kafka are reset, five times",
        act=reset_connections,
        # Each one may end a lease of this length; the same process leads again.
        back_within=TAKEOVER,
        windows=5,
        keeps_leader=True,
    ),
    Fault(
        number="F9",
        text="100 ms each way to Kafka",
        act=slow_network,
        back_within=2,
        keeps_leader=True,
    ),
    Fault(
        number="F9",
        text="what goes to Kafka and back comes in pieces of 100 bytes",
        act=sliced_network,
        back_within=2,
        keeps_leader=True,
    ),
    Fault(
        number="F10",
        text="nothing passes between leader and database",
        act=cut_from_database,
        back_within=DEADLINE + TAKEOVER,
        windows=1,
        variables={"OUTBOX_DATABASE_DEADLINE": str(DEADLINE)},
    ),
    Fault(
        number="F11",
        text="the database crashes and starts again",
        act=crash_database,
        back_within=3,
        windows=1,
    ),
    Fault(
        number="F12",
        text="all sessions of the database are ended each second, five times",
        act=end_sessions,
        back_within=2,
        windows=5,
        keeps_leader=True,
    ),
    Fault(
        number="F15",
        text="the table is locked (`ACCESS EXCLUSIVE`) for 3 s",
        act=lock_table,
        back_within=2,
        keeps_leader=True,
    ),
    Fault(
        number="F15",
        text="a transaction stays open for 10 s",
        act=open_transaction,
        back_within=2,
        keeps_leader=True,
    ),
    Fault(
        number="F17",
        text=f"no broker for {AWAY:g} s",
        act=crash_broker,
        back_within=5,
        windows=1,
    ),
    Fault(
        number="F20",
        text='three records that are too large, with `POISON_POLICY = "park"`',
        act=send_poison,
        back_within=2,
        keeps_leader=True,
        variables={"OUTBOX_POISON_POLICY": "park"},
    ),
    Fault(
        number="F24",
        text=f"{DELAY:g} s each way to Kafka, for two sessions",
        act=delay_for_a_while,
        back_within=TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F24",
        text=f"{DELAY:g} s each way to Kafka, until another process leads",
        act=delay_until_another_leads,
        back_within=CANDIDATE_TIMEOUT + TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F30",
        text="the leader may open no file and no connection any more",
        act=take_descriptors,
        back_within=TAKEOVER,
        windows=1,
    ),
)


def _cut_from_kafka(scene: Scene, *, requests: bool = True) -> float:
    cut_at = boottime_ns()
    scene.to_kafka.hold(requests=requests)
    fenced = scene.leader.wait_for("leader_fenced", "leader_revoked", after=cut_at)
    assert (fenced["boottime_ns"] - cut_at) / NS < SESSION_TIMEOUT
    scene.standby.wait_for("leader_acquired")
    scene.to_kafka.heal()
    return 0


def _lasting(*steps: Callable[[], object]) -> float:
    """Do the steps; the seconds that they took."""
    began = time.monotonic()
    for step in steps:
        step()
    return time.monotonic() - began


def _wait(seconds: float) -> None:
    """Let a fault last."""
    threading.Event().wait(seconds)
