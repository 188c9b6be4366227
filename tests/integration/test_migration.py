"""The table that the migration makes, as plain SQL and goharvest see it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import (
    IntegrityError,
    NotSupportedError,
    connection,
    connections,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker, Settings

ROOT = Path(__file__).resolve().parents[2]
INITIAL = ("django_outbox", "0001_initial")
LEADER = "11111111-1111-1111-1111-111111111111"


def sql(statement: str, *params: Any) -> list[tuple[Any, ...]]:
    """Run one statement as a writer in another language would."""
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


@pytest.mark.django_db
def test_the_models_and_the_migration_agree() -> None:
    call_command("makemigrations", "django_outbox", check=True, dry_run=True)


@pytest.mark.django_db
def test_the_columns_are_those_of_the_design() -> None:
    found = sql(
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
        " WHERE table_name = 'outbox' ORDER BY column_name"
    )
    assert found == [
        ("attempts", "smallint", "NO"),
        ("cluster_id", "smallint", "NO"),
        ("create_time", "timestamp with time zone", "NO"),
        ("id", "bigint", "NO"),
        ("kafka_header_keys", "ARRAY", "NO"),
        ("kafka_header_values", "ARRAY", "NO"),
        ("kafka_key", "character varying", "NO"),
        ("kafka_partition", "integer", "YES"),
        ("kafka_topic", "character varying", "NO"),
        ("kafka_value", "text", "YES"),
        ("kafka_value_bytes", "bytea", "YES"),
        ("last_error", "text", "NO"),
        ("leader_id", "uuid", "YES"),
        ("message_id", "uuid", "NO"),
    ]


@pytest.mark.django_db
def test_parked_and_archived_rows_have_all_but_the_mark() -> None:
    """The harvester moves rows from one table to the other, column by column."""
    outbox, parked, archive = (
        {
            name
            for (name,) in sql(
                "SELECT column_name FROM information_schema.columns"
                " WHERE table_name = %s",
                table,
            )
        }
        for table in ("outbox", "outbox_parked", "outbox_archive")
    )
    (staged,) = sql(
        "SELECT array_agg(column_name::text) FROM information_schema.columns"
        " WHERE table_name = 'outbox_staged'"
    )
    never_sent = {"id", "leader_id", "attempts", "last_error"}
    assert set(staged[0]) == outbox - never_sent | {
        *("staged_id", "series_id", "not_before")
    }
    assert parked == outbox - {"leader_id"} | {"parked_id", "parked_at"}
    assert archive == outbox - {"leader_id"} | {"archived_at"}


@pytest.mark.django_db
def test_ids_are_drawn_one_at_a_time_and_never_again() -> None:
    assert sql(
        "SELECT seqcache, seqcycle, seqmax, seqtypid::regtype::text FROM pg_sequence"
        " WHERE seqrelid = pg_get_serial_sequence('outbox', 'id')::regclass"
    ) == [(1, False, 2**63 - 1, "bigint")]


@pytest.mark.django_db
def test_storage_suits_a_queue() -> None:
    ((options, toast),) = sql(
        "SELECT c.reloptions, t.reloptions FROM pg_class c"
        " JOIN pg_class t ON t.oid = c.reltoastrelid"
        " WHERE c.oid = 'outbox'::regclass"
    )
    assert "fillfactor=50" in options
    for found in (options, toast):
        assert "autovacuum_vacuum_scale_factor=0" in found
        assert "autovacuum_vacuum_threshold=2000" in found
        assert "vacuum_truncate=false" in found


@pytest.mark.django_db
def test_the_mark_needs_no_new_index_entry() -> None:
    """Half of each page is free for the row's marked version."""
    sql(
        "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value)"
        " SELECT 'orders', i::text, repeat('x', 200) FROM generate_series(1, 2000) i"
    )
    # PostgreSQL may not have passed on yet what earlier tests have counted.
    (before,) = sql(_UPDATES)
    sql("UPDATE outbox SET leader_id = %s", LEADER)
    (after,) = sql(_UPDATES)
    assert after[0] - before[0] == 2000
    assert after[1] - before[1] > 1900


_UPDATES = (
    "SELECT pg_stat_get_xact_tuples_updated('outbox'::regclass),"
    " pg_stat_get_xact_tuples_hot_updated('outbox'::regclass)"
)


@pytest.mark.django_db
def test_plain_sql_of_the_operator_contract_works() -> None:
    sql(
        "INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value,"
        " kafka_header_keys, kafka_header_values) VALUES (now(), %s, %s, %s, %s, %s)",
        *("orders", "k", "v", ["a"], ["b"]),
    )
    assert sql(
        "SELECT leader_id, message_id IS NOT NULL, kafka_partition, cluster_id,"
        " attempts, last_error, kafka_value_bytes FROM outbox"
    ) == [(None, True, None, 0, 0, "", None)]


@pytest.mark.django_db
def test_topic_and_key_are_enough() -> None:
    sql("INSERT INTO outbox (kafka_topic, kafka_key) VALUES ('t', '1'), ('t', '2')")
    ((ids, headers),) = sql(
        "SELECT count(DISTINCT message_id), min(kafka_header_keys::text) FROM outbox"
    )
    assert (ids, headers) == (2, "{}")


@pytest.mark.django_db
def test_goharvests_mark_reset_and_purge_work() -> None:
    sql(
        "INSERT INTO outbox (kafka_topic, kafka_key)"
        " SELECT 't', i::text FROM generate_series(1, 3) i"
    )
    marked = sql(
        "UPDATE outbox SET leader_id = %s WHERE id IN (SELECT id FROM outbox"
        " WHERE leader_id IS NULL OR leader_id != %s ORDER BY id LIMIT 2)"
        " RETURNING id, create_time, kafka_topic, kafka_key, kafka_value,"
        " kafka_header_keys, kafka_header_values, leader_id",
        LEADER,
        LEADER,
    )
    (first, second) = sorted(row[0] for row in marked)
    sql("UPDATE outbox SET leader_id = NULL WHERE id = %s", first)
    sql("DELETE FROM outbox WHERE id = %s", second)
    left = sql("SELECT id, leader_id FROM outbox ORDER BY id")
    assert left == [(first, None), (second + 1, None)]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("columns", "values", "constraint"),
    [
        ("kafka_topic", "''", "outbox_topic_name"),
        ("kafka_topic", "'.'", "outbox_topic_name"),
        ("kafka_topic", "'..'", "outbox_topic_name"),
        ("kafka_topic", "'a b'", "outbox_topic_name"),
        ("kafka_topic", "E'a\\n'", "outbox_topic_name"),
        ("kafka_topic", "'__consumer_offsets'", "outbox_topic_name"),
        (
            "kafka_topic, kafka_value, kafka_value_bytes",
            "'t', 'a', 'b'::bytea",
            "outbox_one_value",
        ),
        ("kafka_topic, kafka_header_keys", "'t', '{a}'", "outbox_headers_paired"),
        (
            "kafka_topic, kafka_header_keys, kafka_header_values",
            "'t', '{a,b}', '{a}'",
            "outbox_headers_paired",
        ),
        ("kafka_topic, kafka_partition", "'t', -1", "outbox_partition_not_negative"),
    ],
)
def test_the_database_refuses_what_could_never_be_sent(
    columns: str, values: str, constraint: str
) -> None:
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        sql(f"INSERT INTO outbox (kafka_key, {columns}) VALUES ('k', {values})")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ("'a b', now(), NULL", "outbox_staged_topic_name"),
        ("'t', NULL, NULL", "outbox_staged_waits_for_one"),
        ("'t', now(), 1", "outbox_staged_waits_for_one"),
    ],
)
def test_what_is_staged_is_checked_before_it_reaches_the_leader(
    values: str, constraint: str
) -> None:
    """One row that the outbox refuses would hold up all that is due."""
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        sql(
            "INSERT INTO outbox_staged (kafka_key, kafka_topic, not_before, series_id)"
            f" VALUES ('k', {values})"
        )


@pytest.mark.django_db
@pytest.mark.parametrize(
    "topic", ["orders", "_private", "a", "...", "A.b_c-9", "x" * 249]
)
def test_the_database_accepts_every_other_topic(topic: str) -> None:
    sql("INSERT INTO outbox (kafka_topic, kafka_key) VALUES (%s, 'k')", topic)


@pytest.mark.django_db
@pytest.mark.parametrize("table", ["outbox", "outbox_processed", "outbox_offsets"])
def test_columns_explain_themselves(table: str) -> None:
    assert sql(
        "SELECT count(*) FROM pg_attribute WHERE attrelid = %s::regclass"
        " AND attnum > 0 AND col_description(attrelid, attnum) IS NULL",
        table,
    ) == [(0,)]


@pytest.mark.django_db
def test_the_migration_can_be_taken_back_and_run_again() -> None:
    executor = MigrationExecutor(connection)
    executor.migrate([("django_outbox", None)])
    assert sql("SELECT to_regclass('outbox'), to_regclass('outbox_parked')") == [
        (None, None)
    ]
    assert (
        sql(
            "SELECT relname FROM pg_class WHERE relname LIKE 'outbox%%' UNION"
            " SELECT proname FROM pg_proc WHERE proname LIKE 'outbox%%'"
        )
        == []
    ), "tables, indexes, sequences and functions of the outbox"
    executor = MigrationExecutor(connection)
    executor.migrate([INITIAL])
    sql("INSERT INTO outbox (kafka_topic, kafka_key) VALUES ('t', 'k')")


@pytest.mark.django_db(databases=["default", "other"])
def test_every_postgres_alias_has_the_tables() -> None:
    from django_outbox.models import OutboxRecord

    assert not OutboxRecord.objects.using("other").exists()


@pytest.fixture
def sqlite(
    django_db_blocker: DjangoDbBlocker, tmp_path: Path
) -> Iterator[BaseDatabaseWrapper]:
    """An empty database that is not PostgreSQL."""
    # A file: Django never closes a connection to a database in memory.
    engine = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "lite"}
    handler = ConnectionHandler({"default": {}, "lite": engine})
    connections["lite"] = handler["lite"]
    with django_db_blocker.unblock():
        yield connections["lite"]
        connections["lite"].close()
    del connections["lite"]


def test_on_another_database_the_migration_says_what_to_do(
    sqlite: BaseDatabaseWrapper,
) -> None:
    with pytest.raises(NotSupportedError, match=r"'lite' is SQLite.*allow_migrate"):
        MigrationExecutor(sqlite).migrate([INITIAL])
    assert "outbox" not in sqlite.introspection.table_names()


class _NotHere:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if (db, app_label) == ("lite", "django_outbox") else None


def test_on_another_database_a_router_can_skip_it(
    sqlite: BaseDatabaseWrapper, settings: Settings
) -> None:
    settings.DATABASE_ROUTERS = [_NotHere()]
    MigrationExecutor(sqlite).migrate([INITIAL])
    assert sqlite.introspection.table_names() == ["django_migrations"]


def test_the_settings_name_the_tables(
    tmp_path: Path, django_db_setup: None, database_url: str
) -> None:
    """In another process: models are made once."""
    (tmp_path / "renamed.py").write_text(
        "from tests.settings import *\n"
        "DJANGO_OUTBOX = {'TABLE': 'order_events', 'SHARDS': 1}\n"
    )
    code = (
        "import django; django.setup()\n"
        "from django.core.management import call_command\n"
        "call_command('makemigrations', 'django_outbox', check=True, dry_run=True)\n"
        "call_command('sqlmigrate', 'django_outbox', '0001')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "renamed",
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
            "DATABASE_URL": database_url,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "No changes detected" in result.stdout
    for suffix in (
        "",
        "_parked",
        "_archive",
        "_processed",
        "_offsets",
        "_staged",
        "_series",
    ):
        assert f'CREATE TABLE "order_events{suffix}"' in result.stdout
    for index in ("staged_due", "staged_series", "series_due", "series_closed"):
        assert f'CREATE INDEX "order_events_{index}"' in result.stdout
    assert 'ALTER TABLE "order_events" SET' in result.stdout
    assert '"outbox"' not in result.stdout
