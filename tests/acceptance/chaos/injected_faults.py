"""
What lets a fault happen to a scene.

Each function waits until its fault is over, and returns how many seconds nothing can
have come into the topic because of it alone.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, TypeAlias

import psutil

from django_outbox.clock import boottime_ns

from ...waiting import eventually
from ..harvesters import HEARTBEAT_TIMEOUT, SESSION_TIMEOUT
from .scene import Scene
from .small_disk import small_disk
from .three_brokers import ThreeBrokers

Act: TypeAlias = Callable[[Scene], float]

DELAY: Final = 2.0
"""Seconds on each way, longer than a heartbeat may take."""

AWAY: Final = 20.0
"""Seconds without any broker."""

NS: Final = 1_000_000_000


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
        scene.site.to_kafka.reset()
        _wait(scene.chance.uniform(1, 2) * HEARTBEAT_TIMEOUT)
    return 0


def slow_network(scene: Scene) -> float:
    scene.site.to_kafka.delay = 0.1
    _wait(2 * SESSION_TIMEOUT)
    scene.site.to_kafka.heal()
    return 0


def sliced_network(scene: Scene) -> float:
    scene.site.to_kafka.piece = 100
    _wait(SESSION_TIMEOUT)
    scene.site.to_kafka.heal()
    return 0


def fill_disk(scene: Scene) -> float:
    with small_disk(scene.table) as disk:
        return _lasting(disk.fill, lambda: _wait(5), disk.free)


def cut_from_database(scene: Scene) -> float:
    cut_at = boottime_ns()
    scene.site.to_database.hold()
    scene.standby.wait_for("leader_acquired", after=cut_at)
    scene.site.to_database.heal()
    return 0


def crash_database(scene: Scene) -> float:
    return _lasting(scene.site.servers.postgres.kill, scene.site.servers.postgres.start)


def end_sessions(scene: Scene) -> float:
    for _ in range(5):
        scene.table.end_sessions()
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
    kafka = scene.site.servers.kafka

    def stay_away() -> None:
        used = scene.leader.cpu_seconds()
        _wait(AWAY)
        assert scene.leader.cpu_seconds() - used < 0.2 * AWAY
        kafka.start()

    return _lasting(kafka.kill, stay_away)


def crash_partition_leader(scene: Scene) -> float:
    return _crash_leader_of(scene.topic, scene)


def crash_coordinator(scene: Scene) -> float:
    # It has one partition in the tests.
    return _crash_leader_of("__consumer_offsets", scene)


def lack_replicas(scene: Scene) -> float:
    # The topic has one replica.
    name = "min.insync.replicas"
    return _lasting(
        lambda: scene.topics.configure(scene.topic, name, "2"),
        lambda: _wait(5),
        lambda: scene.topics.configure(scene.topic, name, "1"),
    )


def send_poison(scene: Scene) -> float:
    scene.table.insert(scene.topic, "sick", "x" * 3_000_000, count=3)
    return 0


def delay_for_a_while(scene: Scene) -> float:
    scene.site.to_kafka.delay = DELAY
    _wait(2 * SESSION_TIMEOUT)
    scene.site.to_kafka.heal()
    return 2 * SESSION_TIMEOUT


def delay_until_another_leads(scene: Scene) -> float:
    cut_at = boottime_ns()
    scene.site.to_kafka.delay = DELAY
    scene.standby.wait_for("leader_acquired", after=cut_at)
    scene.site.to_kafka.heal()
    return 0


def take_descriptors(scene: Scene) -> float:
    process = psutil.Process(scene.leader.pid)
    process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds(),) * 2)
    scene.site.to_kafka.reset()
    scene.site.to_database.reset()
    return 0


def take_memory(scene: Scene) -> float:
    process = psutil.Process(scene.leader.pid)
    process.rlimit(psutil.RLIMIT_DATA, (process.memory_info().data,) * 2)
    topic = scene.topics.create()
    for number in range(25):
        # Of many keys, so that every shard has some.
        scene.table.insert(topic, f"large-{number}", "x" * 900_000, count=2)
    scene.leader.exit_code()
    scene.still[scene.leader.name].append(boottime_ns())
    return 0


def _crash_leader_of(topic: str, scene: Scene) -> float:
    brokers = scene.site.servers.kafka
    assert isinstance(brokers, ThreeBrokers)
    eventually(scene.topics.are_in_sync, what="all replicas")
    brokers.crash(scene.topics.leader(topic))
    _wait(4 * SESSION_TIMEOUT)
    brokers.start()
    return 0


def _cut_from_kafka(scene: Scene, *, requests: bool = True) -> float:
    cut_at = boottime_ns()
    scene.site.to_kafka.hold(requests=requests)
    fenced = scene.leader.wait_for("leader_fenced", "leader_revoked", after=cut_at)
    assert (fenced["boottime_ns"] - cut_at) / NS < SESSION_TIMEOUT
    scene.standby.wait_for("leader_acquired", after=cut_at)
    scene.site.to_kafka.heal()
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
