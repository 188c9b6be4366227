"""DELIVERY=exactly-once: what a reader of committed records sees, whatever happens."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

import psycopg
import pytest

from django_outbox.clock import boottime_ns
from django_outbox.devstack import Stack

from ..machine import SOAK, nightly
from ..processes import Process
from ..services import Topics
from ..waiting import eventually
from .auditing import Audited, Delivery, audit, deliveries
from .harvesters import SESSION_TIMEOUT, Harvesters
from .standbys import LaggingStandby
from .tables import OutboxTable, Server
from .writing import Writers

TAKEOVER_NS = int((SESSION_TIMEOUT + 3) * 1e9)


@pytest.fixture(scope="module")
def services(private_services: Stack) -> Stack:
    """Servers that nobody else uses."""
    return private_services


@pytest.fixture(scope="module")
def server(services: Stack) -> Iterator[Server]:
    """The module's PostgreSQL."""
    server = Server(services.database_url)
    yield server
    server.close()


@pytest.fixture(scope="module")
def topics(services: Stack) -> Topics:
    """The module's Kafka."""
    return Topics(services.bootstrap_servers)


@pytest.fixture
def environment(environment: dict[str, str]) -> Mapping[str, str]:
    """The mode that this module is about."""
    return {**environment, "OUTBOX_DELIVERY": "exactly-once"}


class Load:
    """About 2,000 records a second, on top of the writers' own."""

    def __init__(self, writers: Writers) -> None:
        self._writers = writers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _write(self) -> None:
        while not self._stop.wait(0.1):
            with suppress(psycopg.OperationalError):
                self._writers.burst(200)


def place(delivery: Delivery) -> tuple[int, int]:
    """Partitions are read in any order."""
    return delivery.partition, delivery.offset


def test_a_steady_stream_in_either_mode_of_reading(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    harvesters.start_ready(2)
    with Writers(table, topic) as writers:
        writers.burst(2000)
        writers.wait_for(500)
    table.wait_until_empty()

    committed = deliveries(topics.read(topic))
    found = audit(writers.ledger, committed)
    assert found.broken == {}
    assert found.duplicates == 0
    uncommitted = topics.read(topic, isolation_level="read_uncommitted")
    assert sorted(deliveries(uncommitted), key=place) == sorted(committed, key=place)


@nightly
def test_a_rolling_restart(
    harvesters: Harvesters, table: OutboxTable, audited: Audited, topic: str
) -> None:
    first, second = harvesters.start_ready(2)
    with Writers(table, topic) as writers:
        for harvester in (first, second):
            writers.burst(3000)
            asked_at = harvester.terminate()
            assert harvester.exit_code() == 0
            if harvester is first:
                _, acquired = harvesters.wait_for_leader(after=asked_at)
                assert acquired["boottime_ns"] - asked_at <= 2e9
                harvesters.start().wait_for("ready")
    table.wait_until_empty()

    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates == 0


def test_a_zombie_inside_a_transaction(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    audited: Audited,
    topic: str,
) -> None:
    """It wakes up after the take-over: it shows nothing and disturbs nobody."""
    leader, *_ = harvesters.start_ready(2)
    with Writers(table, topic) as writers:
        paused_at = pause_inside_a_transaction(leader, writers, topics, topic)
        successor, acquired = harvesters.wait_for_leader(after=paused_at)
        writers.burst(2000)
        table.wait_until_empty(up_to=max_id(table))
        resumed_at = leader.resume()
        leader.wait_for("leader_fenced", "leader_revoked", after=resumed_at)
        writers.burst(2000)
        writers.wait_for(200)
    table.wait_until_empty()

    assert acquired["boottime_ns"] - paused_at <= TAKEOVER_NS
    later = [e for e in successor.events if e["boottime_ns"] > acquired["boottime_ns"]]
    assert {event["event"] for event in later} <= {"meter_read"}
    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates == 0
    uncommitted = topics.read(topic, isolation_level="read_uncommitted")
    assert len(uncommitted) > len(writers.ledger.committed)


def test_a_soak_with_every_fault(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    topic: str,
    services: Stack,
) -> None:
    chance = random.Random(1)
    running = harvesters.start_ready(3)

    def crash() -> None:
        victim = leading(running)
        victim.kill()
        running.remove(victim)
        running.append(harvesters.start())

    def pause() -> None:
        victim = leading(running)
        victim.pause()
        threading.Event().wait(1.7 * SESSION_TIMEOUT)
        victim.resume()

    def restart_kafka() -> None:
        services.kafka.kill()
        services.kafka.start()

    def restart_postgres() -> None:
        services.postgres.kill()
        services.postgres.start()

    faults = [crash, pause, crash, restart_postgres, crash, restart_kafka]
    end = time.monotonic() + SOAK
    with Writers(table, topic) as writers, Load(writers):
        while time.monotonic() < end or faults:
            fault = faults.pop(0) if faults else chance.choice([crash, crash, pause])
            fault()
            writers.wait_for(2000)
    table.wait_until_empty()

    sent = deliveries(topics.read(topic))
    found = audit(writers.ledger, sent)
    assert found.broken == {}
    assert found.duplicates == 0


def leading(running: list[Process]) -> Process:
    """Who leads, once somebody does."""
    return eventually(lambda: [h for h in running if h.leads], what="a leader")[0]


def max_id(table: OutboxTable) -> int:
    return int(table.execute("SELECT coalesce(max(id), 0) FROM {outbox}")[0][0])


def pause_inside_a_transaction(
    leader: Process, writers: Writers, topics: Topics, topic: str
) -> int:
    """Stop the leader while records of it are in the log and not committed."""
    for _ in range(50):
        writers.burst(2000)
        eventually(
            lambda: topics.is_in_transaction(topic),
            what="a transaction",
            interval=0,
        )
        paused_at = leader.pause()
        # Long enough for a commit to end that was already under way.
        while topics.is_in_transaction(topic):
            if boottime_ns() - paused_at > SESSION_TIMEOUT / 3 * 1e9:
                return paused_at
        leader.resume()
    raise AssertionError("the leader was never met inside a transaction")


def test_a_failover_to_a_standby_that_lagged_behind(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    topic: str,
    services: Stack,
) -> None:
    """Rows come back and ids are given again: all that is there is delivered."""
    returning = table.insert(topic, "returning", count=50)
    standby = LaggingStandby(services.postgres)
    leader = harvesters.start()
    table.wait_until_empty()
    lost_with_the_primary = table.insert(topic, "gone", count=20)
    table.wait_until_empty()

    standby.take_over()
    leader.wait_for_log("Ignoring the ledger of database timeline")
    reused = table.insert(topic, "reused", count=20)
    table.wait_until_empty()

    assert reused == lost_with_the_primary, "the standby has not lagged behind"
    sent = deliveries(topics.read(topic))
    by_key = {
        key: [delivery.id for delivery in sent if delivery.key == key]
        for key in ("returning", "gone", "reused")
    }
    assert by_key["gone"] == lost_with_the_primary
    assert by_key["reused"] == reused
    assert by_key["returning"] == returning * 2
    assert leader.is_running
