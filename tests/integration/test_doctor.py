"""`manage.py outbox doctor` on a real PostgreSQL and on a Kafka with one broker."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from django.core.management import CommandError, call_command
from django.db import transaction
from pytest_django import Settings

from django_outbox import stash
from django_outbox.election.ports import Heartbeat
from django_outbox.kafka.heartbeats import encode
from django_outbox.operations.finding_kinds import KINDS
from django_outbox.operations.grants import grants
from django_outbox.operations.needed_privileges import needed_privileges
from django_outbox.postgres import health_reader
from django_outbox.postgres.connection import Database
from django_outbox.postgres.database_facts import Privilege
from django_outbox.settings.options import OutboxSettings
from tests.services import Topics
from tests.waiting import eventually

from .streams import streaming

pytestmark = pytest.mark.django_db(transaction=True)

ONE_BROKER = ("replication-factor", "min-insync-replicas")
"""What every topic of these tests lacks."""

QUIET = ("--ignore", "internal-topics")
"""Kafka's own topics exist only once another test has used them."""


def run(*arguments: str) -> tuple[str, str]:
    """Return what the command prints, and its error."""
    out = StringIO()
    try:
        call_command("outbox", "doctor", *arguments, stdout=out)
    except CommandError as error:
        return out.getvalue(), str(error)
    return out.getvalue(), ""


def findings(*arguments: str) -> list[dict[str, Any]]:
    printed, _ = run("--json", *arguments)
    found: list[dict[str, Any]] = json.loads(printed)["findings"]
    return found


def seen(name: str, *arguments: str) -> dict[str, str]:
    """Return what was seen, by the subject, in the findings of one name."""
    found = findings(*arguments)
    return {one["subject"]: one["seen"] for one in found if one["name"] == name}


@pytest.fixture(autouse=True)
def leaders(bootstrap_servers: str, settings: Settings) -> str:
    """A leader topic and group of the test's own; neither exists."""
    name = f"leaders-{uuid4()}"
    settings.DJANGO_OUTBOX = {
        "KAFKA": {"bootstrap.servers": bootstrap_servers},
        "LEADER_TOPIC": name,
    }
    return name


def write(topic: str) -> None:
    with transaction.atomic():
        stash(topic, key="key", value="value")


def test_one_broker_cannot_have_durable_topics(topic: str, leaders: str) -> None:
    write(topic)
    assert seen("replication-factor") == {
        f"topic {topic}": "1 replica, 3 needed",
        f"topic {leaders}": "1 replica, 3 needed (once it is created)",
    }
    assert seen("min-insync-replicas") == {
        f"topic {topic}": "min.insync.replicas = 1, 2 needed",
        f"topic {leaders}": "min.insync.replicas = 1, 2 needed (once it is created)",
    }
    _, error = run(*QUIET)
    assert error == "The doctor found 4 errors, 1 warning."


def test_the_report_for_people(topic: str, bootstrap_servers: str) -> None:
    write(topic)
    printed, error = run(*QUIET)
    lines = printed.splitlines()
    at = lines.index("error    replication-factor")
    assert lines[at + 1] == (
        "  A broker that loses its disk takes acknowledged messages with it."
    )
    assert f"  - topic {topic}: 1 replica, 3 needed" in lines
    assert (
        f"    cure: with more replicas: kafka-configs.sh --bootstrap-server"
        f" {bootstrap_servers} --alter --entity-type topics --entity-name {topic}"
        " --add-config min.insync.replicas=2"
    ) in lines
    assert "warning  broker-defaults" in lines
    assert lines[-1].startswith("examined the database default and ")
    assert lines[-1].endswith("on 1 broker: 4 errors, 1 warning")
    assert error == "The doctor found 4 errors, 1 warning."


def test_the_report_for_machines(topic: str) -> None:
    write(topic)
    printed, error = run("--json", *QUIET)
    found = json.loads(printed)
    assert {key: found[key] for key in ("database", "brokers", "has_database")} == {
        "database": "default",
        "brokers": 1,
        "has_database": True,
    }
    assert topic in found["topics"]
    assert (found["errors"], found["warnings"]) == (4, 1)
    assert found["error"] == error
    for one in found["findings"]:
        assert set(one) == {"name", "level", "subject", "seen", "risk", "cure"}


def test_what_is_ignored_is_left_out() -> None:
    names = [kind.name for kind in KINDS]
    printed, error = run(*(part for name in names for part in ("--ignore", name)))
    assert error == ""
    (line,) = printed.splitlines()
    assert line.endswith(": no findings")


def test_settings_of_a_topic_are_read(topics: Topics) -> None:
    topic = topics.create(
        config={
            "retention.ms": "3600000",
            "max.message.bytes": "1000",
            "unclean.leader.election.enable": "true",
            "cleanup.policy": "compact,delete",
        }
    )
    write(topic)
    found = [one["name"] for one in findings() if one["subject"] == f"topic {topic}"]
    assert found == [
        *("replication-factor", "min-insync-replicas", "unclean-leader-election"),
        *("retention", "topic-compacted", "max-message-bytes"),
    ]
    assert seen("retention", "--longest-stop", "30m") == {}


def test_partitions_that_were_added_while_a_record_waits(
    topics: Topics, bootstrap_servers: str
) -> None:
    topic = topics.create()
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, b"before")
    assert producer.flush(30) == 0
    write(topic)
    assert seen("partition-growth") == {}
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(timeout=15)
    eventually(
        lambda: len(admin.list_topics(topic, timeout=5).topics[topic].partitions) == 3,
        what="three partitions",
    )
    eventually(lambda: seen("partition-growth"), what="the finding")
    assert seen("partition-growth")[f"topic {topic}"] == (
        "partitions 1 to 2 have no record from before the oldest waiting one (waiting:"
        " 1 record)"
    )


def test_another_outbox_in_the_leader_topic(
    topics: Topics, leaders: str, bootstrap_servers: str
) -> None:
    topics.create(leaders)
    stranger = Heartbeat(
        node="stranger",
        nonce=str(uuid4()),
        sent_at=1.0,
        outbox="22222222-2222-4222-8222-222222222222",
        system="1/2/3",
    )
    assert seen("two-outboxes") == {}
    # Its heartbeats come all the time.
    with streaming(bootstrap_servers, leaders, encode(stranger)):
        found = findings()
    assert "unreachable" not in [one["name"] for one in found]
    (what,) = [one["seen"] for one in found if one["name"] == "two-outboxes"]
    assert what.startswith(f"stranger leads outbox {stranger.outbox}")


def test_a_kafka_that_is_away_is_a_finding(settings: Settings) -> None:
    settings.DJANGO_OUTBOX["KAFKA"]["bootstrap.servers"] = "127.0.0.1:1"
    (finding,) = findings()
    assert finding["name"] == "unreachable"
    assert finding["subject"] == "Kafka at 127.0.0.1:1"
    assert "connection refused" in finding["seen"]


def test_a_wrong_property_is_an_error(settings: Settings) -> None:
    settings.DJANGO_OUTBOX["KAFKA"]["linger.ms"] = "soon"
    printed, error = run()
    assert printed == ""
    assert "'linger.ms'" in error


# The database.


def test_a_database_of_the_tests_has_no_findings(leaders: str) -> None:
    about = {one["name"] for one in findings()}
    assert about - {*ONE_BROKER, "broker-defaults", "internal-topics"} == set()


def test_commits_that_do_not_wait_are_found(postgres: psycopg.Connection) -> None:
    (name,) = postgres.execute("SELECT current_database()").fetchone() or ()
    postgres.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    try:
        assert seen("synchronous-commit") == {
            "database": "synchronous_commit = off",
            f"database {name}": "synchronous_commit = off",
        }
    finally:
        postgres.execute(f'ALTER DATABASE "{name}" RESET synchronous_commit')


@pytest.mark.parametrize(
    ("change", "undo", "name"),
    [
        ("SET UNLOGGED", "SET LOGGED", "unlogged-table"),
        (
            "SET (autovacuum_enabled = off)",
            "RESET (autovacuum_enabled)",
            "autovacuum",
        ),
    ],
)
def test_a_table_that_was_altered_is_found(
    postgres: psycopg.Connection, change: str, undo: str, name: str
) -> None:
    postgres.execute(f"ALTER TABLE outbox_parked {change}")
    try:
        assert set(seen(name)) == {"table outbox_parked"}
    finally:
        postgres.execute(f"ALTER TABLE outbox_parked {undo}")


def test_a_table_that_is_missing_is_found(postgres: psycopg.Connection) -> None:
    assert seen("table-missing") == {}
    for name in ("outbox_pauses", "outbox_parked"):
        postgres.execute(f"ALTER TABLE {name} RENAME TO {name}_gone")
    try:
        found = seen("table-missing")
        # Not even the outbox is there for a role that may not see the schema.
        postgres.execute("ALTER TABLE outbox RENAME TO outbox_gone")
        try:
            assert seen("table-missing") == {}
        finally:
            postgres.execute("ALTER TABLE outbox_gone RENAME TO outbox")
    finally:
        for name in ("outbox_pauses", "outbox_parked"):
            postgres.execute(f"ALTER TABLE {name}_gone RENAME TO {name}")
    assert found == {"database": "no outbox_parked, outbox_pauses"}


def test_a_sequence_that_caches_is_found(postgres: psycopg.Connection) -> None:
    postgres.execute("ALTER SEQUENCE outbox_id_seq CACHE 20")
    try:
        assert seen("sequence-cache") == {"sequence outbox_id_seq": "CACHE 20"}
    finally:
        postgres.execute("ALTER SEQUENCE outbox_id_seq CACHE 1")


def test_an_old_transaction_is_found(
    postgres: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres.transaction():
        postgres.execute("SET LOCAL application_name = 'sleepy'")
        postgres.execute("SELECT pg_current_xact_id()")
        assert seen("old-transaction") == {}
        monkeypatch.setattr(health_reader, "OLD_TRANSACTION_AGE", 0.0)
        pid = postgres.info.backend_pid
        found = seen("old-transaction")[f"session {pid}"]
        assert found.startswith("sleepy, idle in transaction, open for ")


def test_a_vacuum_is_not_an_old_transaction(
    postgres: psycopg.Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a snapshot, but keeps no dead rows, however long it takes."""
    monkeypatch.setattr(health_reader, "OLD_TRANSACTION_AGE", 0.0)
    reader = health_reader.HealthReader(
        Database({"conninfo": database_url}), table="outbox"
    )
    postgres.execute(
        "CREATE TABLE vast WITH (autovacuum_enabled = off)"
        " AS SELECT generate_series(1, 100000)"
    )
    with (
        psycopg.connect(database_url, autocommit=True) as session,
        ThreadPoolExecutor(1) as pool,
    ):
        session.execute("SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1")
        job = pool.submit(session.execute, "VACUUM vast")
        pid = session.info.backend_pid

        def is_vacuuming() -> bool:
            found = postgres.execute(
                "SELECT FROM pg_stat_activity JOIN pg_stat_progress_vacuum USING (pid)"
                " WHERE pid = %s AND backend_xmin IS NOT NULL AND xact_start < now()",
                [pid],
            )
            return found.rowcount == 1

        try:
            eventually(is_vacuuming, what="a vacuum")
            old = [one.pid for one in reader.read([]).transactions]
            lasted = is_vacuuming()
        finally:
            session.cancel()
        with pytest.raises(psycopg.errors.QueryCanceled):
            job.result(15)
    postgres.execute("DROP TABLE vast")
    reader.close()
    assert lasted
    assert pid not in old


def test_the_privileges_of_the_harvester_are_looked_up(
    postgres: psycopg.Connection, role: str
) -> None:
    (lacks,) = seen("grants", "--harvester", role).values()
    assert "SELECT and DELETE and UPDATE and INSERT on outbox" in lacks
    assert "USAGE on outbox_id_seq" in lacks
    for statement in grants("outbox", harvester=role):
        postgres.execute(statement)
    assert seen("grants", "--harvester", role) == {}
    postgres.execute(f"REVOKE DELETE ON outbox FROM {role}")
    postgres.execute(f"REVOKE INSERT (message_id) ON outbox_parked FROM {role}")
    (finding,) = (
        one for one in findings("--harvester", role) if one["name"] == "grants"
    )
    assert finding["subject"] == f"role {role}"
    assert finding["seen"] == "lacks DELETE on outbox, INSERT on outbox_parked"
    assert finding["cure"] == (
        f"run what python manage.py outbox grants --harvester {role}"
        " --database=default prints"
    )


def test_with_an_archive_its_function_is_looked_up(
    postgres: psycopg.Connection, role: str, settings: Settings
) -> None:
    for statement in grants("outbox", harvester=role):
        postgres.execute(statement)
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "ARCHIVE": True}
    assert seen("grants", "--harvester", role) == {}
    postgres.execute(f"REVOKE EXECUTE ON FUNCTION outbox_archive_tend FROM {role}")
    assert seen("grants", "--harvester", role) == {
        f"role {role}": "lacks EXECUTE on function outbox_archive_tend"
    }
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "ARCHIVE": False}
    assert seen("grants", "--harvester", role) == {}


def test_the_right_to_use_the_schema_is_looked_up(
    postgres: psycopg.Connection, database_url: str, role: str
) -> None:
    """The owner sees the tables, and the harvester's role would not."""
    path = "-c search_path=doctor_tenant"
    reader = health_reader.HealthReader(
        Database({"conninfo": database_url, "options": path}), table="outbox"
    )
    needed = needed_privileges(OutboxSettings())
    postgres.execute("CREATE SCHEMA doctor_tenant")
    try:
        postgres.execute(
            "CREATE TABLE doctor_tenant.outbox (LIKE public.outbox INCLUDING ALL)"
        )
        for relation in ("TABLE", "SEQUENCE"):
            postgres.execute(
                f"GRANT ALL ON ALL {relation}S IN SCHEMA doctor_tenant TO {role}"
            )
        before = reader.read(needed, role=role).missing
        postgres.execute(f"GRANT USAGE ON SCHEMA doctor_tenant TO {role}")
        after = reader.read(needed, role=role).missing
    finally:
        reader.close()
        postgres.execute("DROP SCHEMA doctor_tenant CASCADE")
    assert before == [Privilege("", "USAGE", kind="schema")]
    assert after == []


def test_a_role_that_does_not_exist_is_an_answer() -> None:
    (what,) = seen("unreachable", "--harvester", "nobody_here").values()
    assert 'role "nobody_here" does not exist' in what


def test_the_harvesters_role_sees_nearly_everything(
    postgres: psycopg.Connection, database_url: str, role: str
) -> None:
    for statement in grants("outbox", harvester=role):
        postgres.execute(statement)
    database = Database({"conninfo": database_url, "options": f"-c role={role}"})
    reader = health_reader.HealthReader(database, table="outbox")
    options = OutboxSettings(ARCHIVE=True, PROCESSED_RETENTION=1.0)
    facts = reader.read(needed_privileges(options))
    assert reader.identity() is not None
    reader.close()
    assert facts.server.role == role
    assert not facts.server.sees_all_sessions
    assert facts.missing == []
    assert facts.unseen == {}
    assert {table.name for table in facts.tables} >= {"outbox", "outbox_parked"}


def test_a_role_without_rights_hides_a_part(database_url: str, role: str) -> None:
    database = Database({"conninfo": database_url, "options": f"-c role={role}"})
    reader = health_reader.HealthReader(database, table="outbox")
    needed = needed_privileges(OutboxSettings())
    facts = reader.read(needed)
    reader.close()
    assert set(facts.unseen) == {"waiting records"}
    # Every role may use the schema `public`.
    assert {*needed} - {*facts.missing} == {Privilege("", "USAGE", kind="schema")}


def test_prepared_transactions_and_slots_are_read(database_url: str) -> None:
    """These servers have none; the statements must be right."""
    reader = health_reader.HealthReader(
        Database({"conninfo": database_url}), table="outbox"
    )
    facts = reader.read([])
    reader.close()
    assert (facts.prepared, facts.slots) == ([], [])
