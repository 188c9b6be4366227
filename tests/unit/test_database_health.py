"""What the doctor says of a database: fired, and not fired."""

from __future__ import annotations

from typing import Any

import pytest

from django_outbox.operations.database_health import database_findings
from django_outbox.operations.finding import Finding
from django_outbox.postgres.database_facts import (
    DatabaseFacts,
    IdSequence,
    LooseCommit,
    OldTransaction,
    PreparedTransaction,
    Privilege,
    ServerFacts,
    SlotFacts,
    TableFacts,
)
from django_outbox.settings.options import OutboxSettings

SERVER = ServerFacts(
    is_standby=False,
    is_read_only=False,
    fsync=True,
    full_page_writes=True,
    synchronous_commit="on",
    synchronous_standby_names="",
    autovacuum=True,
    role="shop",
    sees_all_sessions=True,
)
TABLE = TableFacts(
    name="outbox",
    is_unlogged=False,
    live=10,
    dead=50_000,
    size=1024**2,
    is_vacuumed=True,
    vacuumed=30.0,
)
SLOT = SlotFacts(
    "standby_1", is_active=True, xmin_age=0, retained=0.0, status="reserved"
)


def findings(*, notify: bool = False, **facts: Any) -> list[Finding]:
    known = DatabaseFacts(
        **{"server": SERVER, "tables": [TABLE], "role": "shop", **facts}
    )
    return list(database_findings(known, OutboxSettings(NOTIFY=notify)))


def of_server(**changed: Any) -> list[tuple[str, str]]:
    found = findings(server=SERVER._replace(**changed))
    return [(finding.kind.name, finding.cure) for finding in found]


def of_table(**changed: Any) -> list[str]:
    return [one.kind.name for one in findings(tables=[TABLE._replace(**changed)])]


def test_a_stock_server_is_healthy() -> None:
    sequence = IdSequence("outbox_id_seq", 1)
    assert findings(sequence=sequence, slots=[SLOT]) == []


@pytest.mark.parametrize(
    ("changed", "name", "cure"),
    [
        ({"is_standby": True, "is_read_only": True}, "standby", "read-write"),
        ({"is_read_only": True}, "standby", "default_transaction_read_only = off"),
        ({"fsync": False}, "fsync", "SET fsync = on;"),
        ({"full_page_writes": False}, "full-page-writes", "full_page_writes = on;"),
        ({"autovacuum": False}, "autovacuum", "SET track_counts = on;"),
        ({"synchronous_commit": "off"}, "synchronous-commit", "= on; SELECT pg_reload"),
        (
            {"synchronous_commit": "local", "synchronous_standby_names": "*"},
            "synchronous-commit",
            "ALTER SYSTEM",
        ),
        ({"sees_all_sessions": False}, "not-examined", 'pg_read_all_stats TO "shop"'),
    ],
)
def test_each_setting_of_the_server(
    changed: dict[str, Any], name: str, cure: str
) -> None:
    ((found, statement),) = of_server(**changed)
    assert found == name
    assert cure in statement


@pytest.mark.parametrize("value", ["on", "remote_write", "remote_apply", "local"])
def test_commits_that_wait_for_the_disk_are_durable(value: str) -> None:
    assert of_server(synchronous_commit=value) == []


@pytest.mark.parametrize(
    ("loose", "subject", "cure"),
    [
        (LooseCommit("web", "", "off"), "role web", 'ROLE "web" RESET'),
        (LooseCommit("", "shop", "off"), "database shop", 'DATABASE "shop" RESET'),
        (
            LooseCommit("web@shop.iam", "shop-1", "off"),
            "role web@shop.iam in database shop-1",
            'ROLE "web@shop.iam" IN DATABASE "shop-1" RESET',
        ),
        (LooseCommit("", "", "off"), "all roles", "ROLE ALL RESET"),
    ],
)
def test_a_role_that_does_not_wait_is_named(
    loose: LooseCommit, subject: str, cure: str
) -> None:
    (finding,) = findings(loose_commits=[loose])
    assert (finding.kind.name, finding.subject) == ("synchronous-commit", subject)
    assert finding.cure == f"ALTER {cure} synchronous_commit;"
    assert findings(loose_commits=[loose._replace(value="on")]) == []


def test_tables_that_are_missing_are_named() -> None:
    (finding,) = findings(absent=["_parked", "_pauses"])
    assert finding.kind.name == "table-missing"
    assert finding.seen == "no outbox_parked, outbox_pauses"


def test_an_unlogged_table_is_emptied_by_a_crash() -> None:
    assert of_table(is_unlogged=True) == ["unlogged-table"]


def test_a_table_needs_autovacuum() -> None:
    assert of_table(is_vacuumed=False) == ["autovacuum"]


@pytest.mark.parametrize(
    "changed",
    [
        {"dead": 1_000_000},
        {"dead": 100_000, "vacuumed": None},
        {"dead": 100_000, "vacuumed": 601.0},
    ],
)
def test_dead_rows_that_vacuum_leaves(changed: dict[str, Any]) -> None:
    assert of_table(**changed) == ["dead-rows"]


@pytest.mark.parametrize(
    "changed",
    [
        {"dead": 999_999},
        {"dead": 99_999, "vacuumed": None},
        {"dead": 1_000_000, "live": 1_000_000},
    ],
)
def test_dead_rows_of_a_busy_table(changed: dict[str, Any]) -> None:
    assert of_table(**changed) == []


def test_what_holds_deleted_rows_is_named_with_its_end() -> None:
    session, prepared = findings(
        transactions=[OldTransaction(4711, "psql", "idle in transaction", 7_500.0)],
        prepared=[PreparedTransaction("it's", 900.0)],
    )
    assert (session.kind.name, session.subject) == ("old-transaction", "session 4711")
    assert session.seen == "psql, idle in transaction, open for 2 h"
    assert session.cure == "SELECT pg_terminate_backend(4711);"
    assert prepared.kind.name == "prepared-transaction"
    assert prepared.cure == "COMMIT PREPARED 'it''s'; or ROLLBACK PREPARED 'it''s';"


@pytest.mark.parametrize(
    ("changed", "seen"),
    [
        (
            {"is_active": False, "retained": 2.0 * 1024**3},
            "inactive, keeps 2.0 GiB of WAL",
        ),
        ({"status": "lost"}, "wal_status = lost"),
        ({"xmin_age": 1_000_000}, "keeps rows for 1,000,000 transactions"),
    ],
)
def test_a_slot_that_keeps_too_much(changed: dict[str, Any], seen: str) -> None:
    (finding,) = findings(slots=[SLOT._replace(**changed)])
    assert (finding.kind.name, finding.seen) == ("replication-slot", seen)


@pytest.mark.parametrize(
    "changed",
    [{"is_active": False, "retained": 1e6}, {"retained": 1e11}, {"xmin_age": 999}],
)
def test_a_slot_that_keeps_little_or_is_read(changed: dict[str, Any]) -> None:
    assert findings(slots=[SLOT._replace(**changed)]) == []


def test_a_sequence_that_caches_ids() -> None:
    (finding,) = findings(sequence=IdSequence("outbox_id_seq", 32))
    assert finding.kind.name == "sequence-cache"
    assert finding.cure == "ALTER SEQUENCE outbox_id_seq CACHE 1;"


def test_missing_privileges_are_named_by_relation() -> None:
    (finding,) = findings(
        missing=[
            Privilege("", "DELETE"),
            Privilege("_parked", "INSERT", "id"),
            Privilege("_parked", "INSERT", "kafka_key"),
        ]
    )
    assert (finding.kind.name, finding.subject) == ("grants", "role shop")
    assert finding.seen == "lacks DELETE on outbox, INSERT on outbox_parked"
    assert "outbox grants --harvester shop" in finding.cure


def test_missing_privileges_on_other_objects_are_named_with_their_kind() -> None:
    facts = DatabaseFacts(
        server=SERVER,
        role="shop",
        missing=[
            Privilege("", "USAGE", kind="schema"),
            Privilege("", "SELECT"),
            Privilege("_id_seq", "USAGE", kind="ids"),
            Privilege("_archive_tend", "EXECUTE", kind="function"),
        ],
    )
    (finding,) = database_findings(facts, OutboxSettings(DATABASE="acme", NOTIFY=False))
    assert finding.seen == (
        "lacks USAGE on the schema of outbox, SELECT on outbox, USAGE on outbox_id_seq,"
        " EXECUTE on function outbox_archive_tend"
    )
    assert finding.cure == (
        "run what python manage.py outbox grants --harvester shop --database=acme"
        " prints"
    )


def test_notifications_do_not_pass_a_pooler() -> None:
    assert findings(is_pooled=True) == []
    assert findings(notify=True) == []
    (finding,) = findings(is_pooled=True, notify=True)
    assert finding.kind.name == "pooler"
