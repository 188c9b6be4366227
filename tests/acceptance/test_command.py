"""`manage.py runharvester` as operators know it: options, signals, exit codes."""

from __future__ import annotations

import signal
import socket
from datetime import datetime, timedelta

import pytest

from django_outbox.clock import boottime_ns

from ..machine import nightly
from ..processes import Process
from ..services import Topics
from ..waiting import eventually
from .auditing import deliveries
from .groups import Groups
from .harvesters import Harvesters
from .tables import OutboxTable

NS = 1_000_000_000

DRAIN_TIMEOUT = 2.5
"""Seconds, shorter than the default at the tests' timing."""

KEYS = {"event", "name", "shard", "leader_id", "boottime_ns", "time"}


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("OUTBOX_HEARTBEAT_TIMEOUT", "9", "OUTBOX_HEARTBEAT_TIMEOUT"),
        ("OUTBOX_SESSION_TIMEOUT", "soon", "OUTBOX_SESSION_TIMEOUT"),
        ("OUTBOX_POISON_POLICY", "pray", "OUTBOX_POISON_POLICY"),
        ("OUTBOX_TABEL", "outbox", "OUTBOX_TABEL"),
        ("OUTBOX_KAFKA_ACKS", "1", "'acks'"),
        ("OUTBOX_KAFKA_NO_SUCH_PROPERTY", "1", "'no.such.property': no such"),
        ("OUTBOX_KAFKA_LINGERS_MS", "1", 'did you mean "linger.ms"?'),
        ("OUTBOX_KAFKA_LINGER_MS", "soon", "'linger.ms': Invalid value"),
        ("OUTBOX_METRICS_ADDRESS", "everywhere", "OUTBOX_METRICS_ADDRESS"),
        ("DATABASE_URL", "mysql://127.0.0.1/outbox", "DATABASE_URL"),
    ],
)
def test_a_wrong_setting_ends_it_with_one_line_that_names_it(
    harvesters: Harvesters, variable: str, value: str, name: str
) -> None:
    harvester = harvesters.start(**{variable: value})
    assert harvester.exit_code() == 2
    (line,) = harvester.log
    assert name in line
    assert harvester.events == harvester.output == []


def test_a_database_that_is_not_configured_ends_it_with_one_line(
    harvesters: Harvesters,
) -> None:
    harvester = harvesters.start("--database", "nowhere")
    assert harvester.exit_code() == 2
    (line,) = harvester.log
    assert "DATABASE" in line
    assert "'nowhere'" in line


def test_an_address_in_use_ends_it_with_one_line(harvesters: Harvesters) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        harvester = harvesters.start(OUTBOX_METRICS_ADDRESS=address)
        assert harvester.exit_code() == 2
    (line,) = harvester.log
    assert "METRICS_ADDRESS" in line
    assert address in line


def test_json_lines_have_the_keys_of_the_contract(
    harvesters: Harvesters, table: OutboxTable, topic: str
) -> None:
    begun_at = boottime_ns()
    harvester = harvesters.start(name="a name", OUTBOX_METER_INTERVAL="0.5")
    table.insert(topic, "key")
    harvester.wait_for("meter_read")
    harvester.signal(signal.SIGINT)
    assert harvester.exit_code() == 0

    assert harvester.output == []
    events = [event for event in harvester.events if event["event"] != "meter_read"]
    assert [event["event"] for event in events] == [
        *("ready", "leader_acquired", "leader_revoked", "stopped")
    ]
    assert [set(event) for event in events] == [KEYS] * 4
    ready, acquired, revoked, stopped = events
    assert ready["leader_id"] is stopped["leader_id"] is None
    assert acquired["leader_id"] == revoked["leader_id"] is not None
    for event in harvester.events:
        assert set(event) >= KEYS
        assert (event["name"], event["shard"]) == ("a name", 0)
        assert datetime.fromisoformat(event["time"]).utcoffset() == timedelta(0)
    moments = [event["boottime_ns"] for event in events]
    # Two threads tell that the process is ready, and that it leads.
    assert begun_at < min(moments[:2]) <= max(moments[:2]) < moments[2]
    assert moments[2] < moments[3] < boottime_ns()
    meter = harvester.all("meter_read")[0]
    assert meter["leader_id"] == acquired["leader_id"]


def test_its_default_name_is_host_and_pid(harvesters: Harvesters) -> None:
    harvester = harvesters.run("runharvester", "--solo", "--log-format", "json")
    ready = harvester.wait_for("ready")
    assert ready["name"] == f"{socket.gethostname()}-{harvester.pid}"


def test_text_is_the_default_format(harvesters: Harvesters) -> None:
    harvester = harvesters.run("runharvester", "--solo", "--name", "one")
    harvester.wait_for_log("leader_acquired")
    harvester.terminate()
    assert harvester.exit_code() == 0
    # A singleton task may log its end after that.
    assert any(line.endswith(" stopped") for line in harvester.log)
    assert harvester.events == harvester.output == []


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=nightly)]
)
def test_a_standby_ends_at_once_and_in_order(
    harvesters: Harvesters, groups: Groups, number: signal.Signals
) -> None:
    leader, standby = harvesters.start_ready(2)
    asked_at = standby.signal(number)
    assert standby.exit_code() == 0
    # It has nothing to drain: the rest is a process that ends.
    assert (boottime_ns() - asked_at) / NS <= 2.5
    assert [event["event"] for event in standby.events] == ["ready", "stopped"]
    group = harvesters.environment["OUTBOX_LEADER_GROUP"]
    eventually(lambda: groups.settled(group) == 1)
    assert leader.all("leader_fenced") == []


def hold_up(harvester: Process, table: OutboxTable, topic: str) -> None:
    """Let it send records that it cannot purge as long as the lock is held."""
    table.execute(
        "CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_advisory_lock_shared(1); RETURN OLD; END $$;"
        " CREATE TRIGGER hold_up BEFORE DELETE ON {outbox}"
        " FOR EACH ROW EXECUTE FUNCTION hold_up()"
    )
    harvester.wait_for("leader_acquired")
    table.insert(topic, "key", count=3)
    eventually(
        lambda: table.execute(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory'"
        ),
    )


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_a_second_signal_ends_it_at_once(
    harvesters: Harvesters,
    table: OutboxTable,
    topic: str,
    number: signal.Signals,
    code: int,
) -> None:
    harvester = harvesters.start(OUTBOX_DRAIN_TIMEOUT=str(DRAIN_TIMEOUT))
    with table.connect() as blocker:
        blocker.execute("SELECT pg_advisory_lock(1)")
        hold_up(harvester, table, topic)
        asked_at = harvester.signal(number)
        # It drains, and nothing tells when it got the first one: send more.
        eventually(lambda: not harvester.is_running or not harvester.signal(number))
        assert harvester.exit_code() == code
        assert (boottime_ns() - asked_at) / NS < DRAIN_TIMEOUT
    assert harvester.all("stopped") == []


def test_a_drain_that_gets_nowhere_ends_in_time(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    harvester = harvesters.start(OUTBOX_DRAIN_TIMEOUT=str(DRAIN_TIMEOUT))
    with table.connect() as blocker:
        blocker.execute("SELECT pg_advisory_lock(1)")
        hold_up(harvester, table, topic)
        asked_at = harvester.terminate()
        assert harvester.exit_code() == 0
        assert (boottime_ns() - asked_at) / NS <= DRAIN_TIMEOUT + 2
    assert harvester.events[-1]["event"] == "stopped"
    harvesters.start()
    table.wait_until_empty()
    sent = [delivery.id for delivery in deliveries(topics.read(topic))]
    assert sorted(set(sent)) == sent[:1] + sent[-2:]


def test_drain_ends_when_the_table_is_empty(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    ids = table.insert(topic, "key", count=300)
    harvester = harvesters.start("--drain")
    assert harvester.exit_code() == 0
    assert table.count() == 0
    assert [d.id for d in deliveries(topics.read(topic))] == ids
    assert harvester.events[-1]["event"] == "stopped"
    again = harvesters.start("--drain")
    assert again.exit_code() == 0
    assert again.events[-1]["event"] == "stopped"


def test_drain_beside_another_leader_waits_for_it(
    harvesters: Harvesters, table: OutboxTable, topic: str
) -> None:
    leader = harvesters.start()
    leader.wait_for("leader_acquired")
    table.insert(topic, "key", count=300)
    drain = harvesters.start("--drain")
    assert drain.exit_code() == 0
    assert table.count() == 0
    assert leader.all("leader_fenced", "leader_revoked") == []


def test_solo_leads_without_a_group(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    topic: str,
    groups: Groups,
) -> None:
    ids = table.insert(topic, "key", count=3)
    harvester = harvesters.start("--solo")
    harvester.wait_for("leader_acquired")
    table.wait_until_empty()
    assert not groups.exists(harvesters.environment["OUTBOX_LEADER_GROUP"])
    harvester.terminate()
    assert harvester.exit_code() == 0
    assert [d.id for d in deliveries(topics.read(topic))] == ids
