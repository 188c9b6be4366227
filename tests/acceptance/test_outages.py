"""PostgreSQL and Kafka that stop, crash and come back; servers of our own."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import LiteralString
from urllib.parse import urlsplit

import pytest

from django_outbox.clock import boottime_ns
from django_outbox.devstack import Stack
from django_outbox.devstack.service import free_port

from ..machine import COLD_STARTS, nightly
from ..services import Topics, fetch, is_ready, start_missing
from ..waiting import eventually
from .auditing import Audited, deliveries
from .frozen import frozen
from .harvesters import HEARTBEAT_TIMEOUT, MODES, SESSION_TIMEOUT, Harvesters, modes
from .proxies import SilentProxy
from .tables import OutboxTable, Server
from .writing import Writers

WINDOW = 200

NS = 1_000_000_000

NOTHING_NEW = {"ready", "leader_acquired", "leader_refreshed", "meter_read"}


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


@pytest.fixture(autouse=True)
def _everything_runs(services: Stack, table: OutboxTable) -> Iterator[None]:
    """Whatever a test leaves stopped is started for the next one."""
    yield
    start_missing(services)


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    """A small window, so that the bound on duplicates says something."""
    return {**environment, "OUTBOX_MAX_IN_FLIGHT": str(WINDOW)}


@nightly
def test_sessions_that_are_ended_every_second(
    harvesters: Harvesters, table: OutboxTable, audited: Audited, topic: str
) -> None:
    leader, standby = harvesters.start_ready(2)
    rounds = 5
    with Writers(table, topic) as writers:
        for _ in range(rounds):
            writers.burst(300)
            (newest,) = table.execute("SELECT max(id) FROM {outbox}")[0]
            table.end_sessions()
            table.wait_until_empty(up_to=newest)
    table.wait_until_empty()

    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates <= rounds * WINDOW
    assert leader.is_running
    assert standby.is_running
    assert {event["event"] for event in leader.events} <= NOTHING_NEW


@pytest.mark.parametrize("way", [pytest.param("stop", marks=nightly), "kill"])
def test_a_database_that_restarts(
    harvesters: Harvesters,
    table: OutboxTable,
    audited: Audited,
    topic: str,
    services: Stack,
    way: str,
) -> None:
    leader, standby = harvesters.start_ready(2)
    with Writers(table, topic) as writers:
        writers.burst(1000)
        getattr(services.postgres, way)()
        leader.wait_for_log("unavailable, retrying")
        services.postgres.start()
        (newest,) = table.execute("SELECT coalesce(max(id), 0) FROM {outbox}")[0]
        # The bound is 2 s on a quiet machine; the writers compete.
        table.wait_until_empty(up_to=newest)
        writers.wait_for(100)
    table.wait_until_empty()

    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates <= WINDOW
    assert leader.is_running
    assert standby.is_running
    assert leader.wait_for_log("recovered after")


def test_a_leader_without_its_database_resigns_and_comes_back(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    topic: str,
    services: Stack,
) -> None:
    leader = harvesters.start(OUTBOX_DATABASE_DEADLINE="2")
    leader.wait_for("leader_acquired")
    stopped_at = boottime_ns()
    services.postgres.stop()
    revoked = leader.wait_for("leader_revoked", after=stopped_at)
    leader.wait_for_log("the database does not answer")
    services.postgres.start()
    leader.wait_for("leader_acquired", after=revoked["boottime_ns"])
    ids = table.insert(topic, "key", count=3)
    table.wait_until_empty()

    assert revoked["boottime_ns"] - stopped_at >= 1.5 * NS
    assert [d.id for d in deliveries(topics.read(topic))] == ids
    assert len(leader.all("ready")) == 1


@nightly
def test_a_silent_way_to_the_database_hands_leadership_over(
    harvesters: Harvesters, table: OutboxTable, audited: Audited, topic: str
) -> None:
    """Nothing arrives and TCP is alive: only a lack of answers tells of it."""
    deadline = 3.0
    server = urlsplit(table.url)
    assert server.hostname
    assert server.port
    with SilentProxy(server.hostname, server.port) as proxy:
        _, _, host = server.netloc.rpartition("@")
        way = table.url.replace(f"@{host}/", f"@127.0.0.1:{proxy.port}/")
        assert way != table.url
        leader = harvesters.start(
            DATABASE_URL=way, OUTBOX_DATABASE_DEADLINE=str(deadline)
        )
        leader.wait_for("leader_acquired")
        standby = harvesters.start(OUTBOX_DATABASE_DEADLINE=str(deadline))
        standby.wait_for("ready")
        with Writers(table, topic) as writers:
            writers.burst(1000)
            cut_at = boottime_ns()
            proxy.go_silent()
            acquired = standby.wait_for("leader_acquired")
            writers.wait_for(100)
        table.wait_until_empty()
        # It waits for its database, but not forever for one answer.
        leader.terminate()
        assert leader.exit_code() == 0

    vacancy = (acquired["boottime_ns"] - cut_at) / NS
    assert vacancy <= deadline + SESSION_TIMEOUT + 3
    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates <= WINDOW


@pytest.mark.parametrize(
    ("relay", "mode"),
    [
        ("pipelined", "ACCESS EXCLUSIVE"),
        pytest.param("ledger", "SHARE", marks=nightly),
        pytest.param("pipelined", "SHARE", marks=nightly),
        pytest.param("ledger", "ACCESS EXCLUSIVE", marks=nightly),
        pytest.param("table", "ACCESS EXCLUSIVE", marks=nightly),
        pytest.param("table", "SHARE", marks=nightly),
    ],
)
def test_a_lock_is_no_outage(
    harvesters: Harvesters,
    table: OutboxTable,
    audited: Audited,
    topic: str,
    relay: str,
    mode: LiteralString,
) -> None:
    """A migration keeps all statements waiting, or an index only the purges."""
    deadline = 1.0
    options = {**MODES[relay], "OUTBOX_DATABASE_DEADLINE": str(deadline)}
    leader = harvesters.start(**options)
    leader.wait_for("leader_acquired")
    standby = harvesters.start(**options)
    standby.wait_for("ready")
    with Writers(table, topic) as writers:
        writers.burst(3000)
        with table.connect() as other, other.transaction():
            other.execute(f"LOCK TABLE outbox IN {mode} MODE")
            leader.wait_for_log("waits for a lock on outbox, held by pid")
            # Well beyond the deadline and all that could follow from it.
            threading.Event().wait(5 * deadline)
        writers.wait_for(100)
    table.wait_until_empty()

    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates == 0
    assert leader.all("leader_fenced", "leader_revoked", "leader_refreshed") == []
    assert standby.all("leader_acquired") == []
    told = [line for line in leader.log if "waits for a lock" in line]
    # One of each connection: that which reads, that which settles.
    assert len(told) <= 2


@pytest.mark.parametrize("way", [pytest.param("stop", marks=nightly), "kill"])
def test_a_broker_that_is_away_for_a_while(
    harvesters: Harvesters,
    table: OutboxTable,
    audited: Audited,
    topic: str,
    services: Stack,
    way: str,
) -> None:
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    leader = harvesters.start(OUTBOX_METRICS_ADDRESS=addresses[0])
    leader.wait_for("leader_acquired")
    standby = harvesters.start(OUTBOX_METRICS_ADDRESS=addresses[1])
    standby.wait_for("ready")
    with Writers(table, topic) as writers:
        writers.burst(1000)
        killed_at = boottime_ns()
        getattr(services.kafka, way)()
        fenced = leader.wait_for("leader_fenced", after=killed_at)
        used = leader.cpu_seconds(), standby.cpu_seconds()
        quiet_from = boottime_ns()
        # Beyond each time-out; the start takes some seconds more.
        threading.Event().wait(6)
        away = (boottime_ns() - quiet_from) / NS
        busy = max(leader.cpu_seconds() - used[0], standby.cpu_seconds() - used[1])
        assert table.count() > 500
        for address in addresses:
            status, text = fetch(address, "/readyz")
            assert status == 503
            assert f"Kafka at {services.bootstrap_servers} unavailable" in text
            assert fetch(address, "/livez")[0] == 200
        services.kafka.start()
        back_at = boottime_ns()
        _, acquired = harvesters.wait_for_leader(after=fenced["boottime_ns"])
        writers.wait_for(100)
    table.wait_until_empty()

    assert (fenced["boottime_ns"] - killed_at) / NS <= HEARTBEAT_TIMEOUT + 0.3
    assert busy / away < 0.2
    assert (acquired["boottime_ns"] - back_at) / NS <= 5
    for address in addresses:
        eventually(partial(is_ready, address))
    for harvester in (leader, standby):
        harvester.wait_for_log(f"Kafka at {services.bootstrap_servers} recovered")
        told = [line for line in harvester.log if "connection refused" in line]
        assert len(told) == 1, told
    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates <= WINDOW
    assert leader.is_running
    assert standby.is_running


@nightly
@pytest.mark.parametrize("pause", [1.0, 5.0])
@pytest.mark.parametrize("mode", ["pipelined", "one-per-key", "ledger"])
def test_a_broker_that_stands_still(  # each argument is a fixture or a case
    harvesters: Harvesters,
    table: OutboxTable,
    audited: Audited,
    topic: str,
    services: Stack,
    mode: str,
    pause: float,
) -> None:
    """Within the lease, or beyond the session; beyond the delivery's time in both."""
    harvesters.environment = {
        **harvesters.environment,
        **MODES[mode],
        "OUTBOX_DELIVERY_TIMEOUT": "0.5",
    }
    leader, standby = harvesters.start_ready(2)
    with Writers(table, topic) as writers:
        writers.wait_for(100)
        with frozen(services.bootstrap_servers):
            writers.burst(10_000)
            threading.Event().wait(pause)
            assert table.count() >= 10_000
        writers.wait_for(100)
    table.wait_until_empty()

    found = audited(writers, is_pipelined=mode == "pipelined")
    assert found.broken == {}
    assert found.duplicates <= (0 if mode == "ledger" else WINDOW)
    assert leader.is_running
    assert standby.is_running


@pytest.mark.parametrize("mode", modes("pipelined", "one-per-key"))
def test_a_start_without_servers_and_fresh_topics_on_a_cold_broker(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    services: Stack,
    mode: str,
) -> None:
    for number in range(COLD_STARTS):
        _start_cold(harvesters, table, topics, services, mode, number)


def _start_cold(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    services: Stack,
    mode: str,
    start: int,
) -> None:
    name = f"fresh-{table.url.rpartition('_')[2]}-{start}"
    fresh = [f"{name}-{number}" for number in range(40)]
    expected = {
        (topic, key): [table.insert(topic, key)[0] for _ in range(3)]
        for topic in fresh
        for key in ("a", "b")
    }
    services.kafka.kill()
    services.postgres.kill()
    harvester = harvesters.start(**MODES[mode])
    harvester.wait_for_log("The outbox table is unavailable, retrying")
    services.postgres.start()
    harvester.wait_for_log(
        f"Kafka at {services.bootstrap_servers} unavailable: connection refused"
    )
    assert harvester.events == []
    services.kafka.start()
    harvester.wait_for("ready")
    harvester.wait_for("leader_acquired")
    table.wait_until_empty()

    sent = deliveries(topics.read(*fresh))
    found: defaultdict[tuple[str, str], dict[int, None]] = defaultdict(dict)
    for delivery in sent:
        found[delivery.topic, delivery.key].setdefault(delivery.id)
    # A partition that is still coming up may take a record and lose it.
    assert {ordering_key: list(ids) for ordering_key, ids in found.items()} == expected
    assert len(harvester.all("ready")) == 1
    harvester.terminate()
    assert harvester.exit_code() == 0


@nightly
def test_a_signal_while_everything_is_away(
    harvesters: Harvesters, services: Stack
) -> None:
    leader, standby = harvesters.start_ready(2)
    services.kafka.kill()
    services.postgres.kill()
    asked_at = boottime_ns()
    for harvester in (leader, standby):
        harvester.terminate()
    for harvester in (leader, standby):
        assert harvester.exit_code() == 0
        assert harvester.events[-1]["event"] == "stopped"
    # A third of 2.5 session time-outs to drain, and two seconds.
    assert (boottime_ns() - asked_at) / NS <= 2.5 + 2
