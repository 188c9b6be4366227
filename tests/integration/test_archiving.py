"""The archive by days: made ahead, dropped when they are old."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from django.db import (
    DataError,
    OperationalError,
    ProgrammingError,
    connection,
    transaction,
)
from django.db.models.functions import Now
from pytest_django import Settings

from django_outbox.migrations import _sql
from django_outbox.models import ArchivedRecord
from django_outbox.operations import archiving
from tests.unit.samples import READING

DAY = timedelta(days=1)

pytestmark = pytest.mark.django_db


def archive(id: int, *, age: timedelta) -> None:
    ArchivedRecord.objects.create(
        id=id, kafka_topic="t", kafka_key="k", archived_at=Now() - age
    )


def parts() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits"
            " WHERE inhparent = 'outbox_archive'::regclass ORDER BY 1"
        )
        return [name for (name,) in cursor.fetchall()]


def part_of(id: int) -> str:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tableoid::regclass::text FROM outbox_archive WHERE id = %s", [id]
        )
        return str(cursor.fetchone()[0])


def day(ahead: int) -> str:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT to_char(now() AT TIME ZONE 'UTC' + make_interval(days => %s),"
            " 'YYYYMMDD')",
            [ahead],
        )
        return str(cursor.fetchone()[0])


def make_part(ahead: int) -> None:
    first, last = (f"{day(n)} 00:00+00" for n in (ahead, ahead + 1))
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE outbox_{day(ahead)} PARTITION OF outbox_archive"
            f" FOR VALUES FROM ('{first}') TO ('{last}')"
        )


def test_each_of_the_next_days_has_a_partition() -> None:
    archiving.tend()
    archive(1, age=timedelta())
    assert {f"outbox_{day(n)}" for n in range(3)} <= set(parts())
    assert part_of(1) == f"outbox_{day(0)}"


def test_days_that_are_too_old_are_dropped(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {"ARCHIVE": True, "ARCHIVE_RETENTION": 30 * 86_400.0}
    for ahead in (-40, -32, -30):
        make_part(ahead)
        archive(-ahead, age=-ahead * DAY)
    archive(50, age=50 * DAY)
    archive(20, age=20 * DAY)
    assert part_of(50) == part_of(20) == "outbox_archive_rest"

    assert archiving.tend() == 2
    left = ArchivedRecord.objects.order_by("id").values_list("id", flat=True)
    assert list(left) == [20, 30, 50]
    # A call that drops no days deletes what never had one.
    assert archiving.tend() == 0
    assert list(left.all()) == [20, 30]


@pytest.mark.django_db(transaction=True)
def test_who_reads_an_old_day_keeps_no_new_one_from_being_made(
    settings: Settings, postgres: psycopg.Connection
) -> None:
    settings.DJANGO_OUTBOX = {"ARCHIVE": True, "ARCHIVE_RETENTION": 30 * 86_400.0}
    make_part(-40)
    old, new = f"outbox_{day(-40)}", f"outbox_{day(2)}"
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {new}")
    with postgres.transaction():
        postgres.execute(f"SELECT FROM {old}")
        with pytest.raises(OperationalError, match="lock timeout"):
            archiving.tend()
        assert new in parts()
    assert archiving.tend() == 1
    assert old not in parts()


def test_without_a_retention_nothing_is_dropped() -> None:
    make_part(-400)
    archive(1, age=400 * DAY)
    assert archiving.tend() == 0
    assert ArchivedRecord.objects.exists()


@pytest.mark.parametrize(("rows", "is_moved"), [(3, True), (100_001, False)])
def test_a_few_rows_move_to_a_partition_that_comes_late(
    rows: int, *, is_moved: bool
) -> None:
    """Else each new day's partition makes the server scan the rest, under a lock."""
    archiving.tend()
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE outbox_{day(2)}")
        cursor.execute(
            "INSERT INTO outbox_archive (id, kafka_topic, kafka_key, archived_at)"
            " SELECT n, 't', 'k', now() + interval '2 days'"
            " FROM generate_series(1, %s) AS n",
            [rows],
        )
    archive(rows + 1, age=DAY * 400)
    assert part_of(1) == "outbox_archive_rest"
    archiving.tend()
    assert part_of(1) == (f"outbox_{day(2)}" if is_moved else "outbox_archive_rest")
    assert part_of(rows + 1) == "outbox_archive_rest"
    assert ArchivedRecord.objects.count() == rows + 1


@pytest.mark.parametrize("retention", [1e-9, 1.0, 86_399.0])
def test_what_the_owner_wants_kept_is_not_dropped(retention: float) -> None:
    """The harvester's role may call the function, and may not delete."""
    make_part(-3)
    archive(1, age=3 * DAY)
    with (
        pytest.raises(DataError, match="less than outbox_archive_least"),
        transaction.atomic(),
    ):
        call_tend(retention)
    assert ArchivedRecord.objects.count() == 1
    assert call_tend(86_400.0) == 1


def test_the_owner_says_how_much_is_kept() -> None:
    make_part(-3)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE OR REPLACE FUNCTION outbox_archive_least() RETURNS interval"
            " LANGUAGE sql IMMUTABLE AS $$ SELECT interval '30 days' $$"
        )
    with pytest.raises(DataError, match="30 days"), transaction.atomic():
        call_tend(29 * 86_400.0)
    assert call_tend(30 * 86_400.0) == 0


@pytest.mark.parametrize(
    "planted",
    ["to_char(date, text)", "right(name, integer)"],
)
def test_a_function_that_somebody_has_planted_does_not_run_as_the_owner(
    planted: str,
) -> None:
    """Up to PostgreSQL 14 anybody may create functions in the schema public."""
    make_part(-40)
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS outbox_{day(2)}")
        cursor.execute("CREATE ROLE outbox_test_mallory")
        cursor.execute("GRANT CREATE ON SCHEMA public TO outbox_test_mallory")
        cursor.execute("SET LOCAL ROLE outbox_test_mallory")
        cursor.execute(
            f"CREATE FUNCTION public.{planted} RETURNS text LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'runs as %', current_user; END $$"
        )
        cursor.execute("RESET ROLE")

    assert call_tend(30 * 86_400.0) == 1
    assert f"outbox_{day(2)}" in parts()


def make_archive_in(schema: str) -> None:
    """Make another archive, and go on in its schema."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(f"SET LOCAL search_path = {schema}")
        cursor.execute(
            "CREATE TABLE outbox_archive (LIKE public.outbox_archive INCLUDING ALL)"
        )
        cursor.execute(_sql.DIVIDE)
        cursor.execute(_sql.LEAST + _sql.TEND)


def test_the_archive_may_be_in_any_schema() -> None:
    make_archive_in('"Sales 2"')
    with connection.cursor() as cursor:
        cursor.execute(_sql.BEGIN_TENDING)
        cursor.execute("CREATE TABLE outbox_20200101 (LIKE outbox_archive)")
        cursor.execute(
            "ALTER TABLE outbox_archive ATTACH PARTITION outbox_20200101"
            " FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')"
        )
        cursor.execute("SET LOCAL search_path = public")
        before = parts()
        cursor.execute('SELECT "Sales 2".outbox_archive_tend(86400)')
        assert cursor.fetchone() == (1,)
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits"
            """ WHERE inhparent = '"Sales 2".outbox_archive'::regclass"""
        )
        found = {name for (name,) in cursor.fetchall()}

    assert parts() == before
    assert found == {
        f'"Sales 2".{name}'
        for name in ("outbox_archive_rest", *(f"outbox_{day(n)}" for n in range(3)))
    }


def test_a_migration_makes_the_function_of_a_renamed_schema_again() -> None:
    make_archive_in("acme")
    with connection.cursor() as cursor:
        cursor.execute("ALTER SCHEMA acme RENAME TO globex")
        cursor.execute("SET LOCAL search_path = globex")
        with pytest.raises(ProgrammingError, match="acme"), transaction.atomic():
            cursor.execute("SELECT outbox_archive_tend(0)")
        cursor.execute(_sql.TEND)
        cursor.execute("SELECT outbox_archive_tend(0)")
        cursor.execute("SELECT to_regclass(%s)", [f"globex.outbox_{day(0)}"])
        assert cursor.fetchone() != (None,)


def call_tend(retention: float) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT outbox_archive_tend(%s)", [retention])
        return int(cursor.fetchone()[0])


def test_a_leader_tends_once_in_a_while(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the database that it harvests, each leader its own."""
    tended: list[str] = []
    monkeypatch.setattr(archiving, "tend", tended.append)
    monkeypatch.setattr(archiving, "_due", {})
    here, other = (replace(READING, database=alias) for alias in ("default", "other"))
    archiving.tend_if_due(event=here)
    settings.DJANGO_OUTBOX = {"ARCHIVE": True}
    archiving.tend_if_due(event=replace(here, shard=1))
    assert tended == []
    for reading in (here, other, here, other):
        archiving.tend_if_due(event=reading)
    assert tended == ["default", "other"]
