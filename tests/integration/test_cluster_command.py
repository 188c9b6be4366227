"""`manage.py outbox cluster init`: the database knows which cluster it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from threading import Event

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from pytest_django import Settings

from django_outbox import open_series, stash
from django_outbox.checks import check_tables
from django_outbox.models import OutboxRecord, ParkedRecord, StagedRecord
from tests.acceptance.harvesters import Harvesters
from tests.waiting import eventually

INSERT = "INSERT INTO outbox (kafka_topic, kafka_key) VALUES ('t', 'k')"

Become = Callable[..., None]


@pytest.fixture
def become(settings: Settings) -> Become:
    """Make this process one of a cluster's."""

    def become(cluster: int, *, count: int = 3) -> None:
        settings.DJANGO_OUTBOX = {
            **settings.DJANGO_OUTBOX,
            "CLUSTER_ID": cluster,
            "CLUSTERS_COUNT": count,
        }

    return become


@pytest.fixture
def alone_again(become: Become, database_url: str) -> Iterator[None]:
    """Leave the database as it was to tests whose work is rolled back."""
    yield
    become(0, count=1)
    run()


def run(*arguments: str) -> str:
    """Run `outbox cluster init` and return what it prints."""
    out = StringIO()
    call_command("outbox", "cluster", "init", *arguments, stdout=out)
    return out.getvalue()


def drawn(rows: int = 3) -> list[tuple[int, int]]:
    """Write rows by plain SQL; return their ids and clusters."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key)"
            " SELECT 't', 'k' FROM generate_series(1, %s) RETURNING id, cluster_id",
            [rows],
        )
        return list(cursor.fetchall())


@pytest.mark.django_db
@pytest.mark.parametrize("cluster", [0, 1, 2])
def test_a_cluster_has_ids_and_rows_of_its_own(become: Become, cluster: int) -> None:
    become(cluster)
    last = drawn()[-1][0]

    shown = run()

    assert f"cluster  {cluster} of 3 in the database 'default'\n" in shown
    rows = drawn()
    ids = [number for number, _ in rows]
    assert {origin for _, origin in rows} == {cluster}
    assert [number % 3 for number in ids] == [cluster] * 3
    assert ids[1] - ids[0] == ids[2] - ids[1] == 3
    assert last < ids[0] <= last + 3


@pytest.mark.django_db
def test_stash_leaves_the_cluster_to_the_database(become: Become) -> None:
    become(1)
    run()
    become(2)
    with transaction.atomic():
        stash("t", key="k", value=None)
        open_series("later").stash("t", key="k", value=None)
    assert OutboxRecord.objects.get().cluster_id == 1
    assert StagedRecord.objects.get().cluster_id == 1


@pytest.mark.django_db
def test_it_changes_nothing_twice(become: Become) -> None:
    become(1)
    first = run()
    before = drawn()[-1][0]
    assert run().startswith("nothing to do\n")
    assert "nothing to do" not in first
    assert drawn()[0][0] == before + 3


@pytest.mark.django_db
def test_it_begins_above_every_id_that_it_knows(become: Become) -> None:
    become(1)
    OutboxRecord.objects.create(id=1_000_000, kafka_topic="t", kafka_key="k")
    run()
    assert drawn()[0][0] == 1_000_003
    ParkedRecord.objects.create(id=5_000_000, kafka_topic="t", kafka_key="k")
    become(2)
    run()
    assert drawn()[0][0] == 5_000_003
    run("--above", "10000000")
    assert drawn()[0][0] == 10_000_001
    assert run("--above", "10000000").startswith("nothing to do\n")


@pytest.mark.django_db
def test_a_table_that_is_emptied_with_its_ids_stays_a_clusters(become: Become) -> None:
    become(1)
    run("--above", "100")
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE outbox RESTART IDENTITY")
    assert [number % 3 for number, _ in drawn()] == [1, 1, 1]


@pytest.mark.django_db
def test_one_cluster_again_draws_every_id(become: Become) -> None:
    become(2)
    run()
    become(0, count=1)
    run()
    (first, origin), (second, _) = drawn(2)
    assert (second - first, origin) == (1, 0)


@pytest.mark.django_db
def test_check_names_the_next_step(become: Become) -> None:
    become(1)
    with pytest.raises(CommandError, match=r"remainder 1.* Run `manage.py outbox clus"):
        run("--check")
    (default, ids) = check_tables(databases=["default"])
    assert default.id == ids.id == "django_outbox.W010"
    assert "cluster_id 0 by default, not 1" in default.msg

    run()

    assert "cluster  1 of 3" in run("--check")
    assert check_tables(databases=["default"]) == []


@pytest.mark.django_db
def test_another_clusters_ids_are_not_taken_for_ones_own(become: Become) -> None:
    become(1)
    run()
    become(2)
    assert len(check_tables(databases=["default"])) == 2


@pytest.mark.django_db
def test_a_dry_run_prints_what_would_be_done(become: Become) -> None:
    become(1)
    printed = run("--dry-run")
    assert printed.startswith("BEGIN;\n")
    with pytest.raises(CommandError):
        run("--check")
    inner = printed.removeprefix("BEGIN;\n").removesuffix("COMMIT;\n")
    with connection.cursor() as cursor:
        cursor.execute(inner)
    assert "cluster  1 of 3" in run("--check")
    assert run("--dry-run") == "-- nothing to do\n"


@pytest.mark.django_db
def test_a_dry_run_is_for_no_other_outbox_than_that_of_the_alias(
    become: Become,
) -> None:
    """The session that runs it may find another one under the same names."""
    become(1)
    with connection.cursor() as cursor:
        cursor.execute('CREATE SCHEMA "Sales 2"')
        for table in ("outbox", "outbox_parked", "outbox_staged"):
            cursor.execute(
                f'CREATE TABLE "Sales 2".{table} (LIKE public.{table} INCLUDING ALL)'
            )
        cursor.execute('SET LOCAL search_path = "Sales 2"')
        printed = run("--dry-run")
        cursor.execute("SET LOCAL search_path = public")
        cursor.execute(printed.removeprefix("BEGIN;\n").removesuffix("COMMIT;\n"))
        with pytest.raises(CommandError, match="cluster_id 0 by default, not 1"):
            run("--check")
        cursor.execute('SET LOCAL search_path = "Sales 2"')
        assert "cluster  1 of 3" in run("--check")


def test_a_writer_that_does_not_end_is_not_waited_for(
    become: Become, postgres: psycopg.Connection, database_url: str
) -> None:
    become(1)
    with psycopg.connect(database_url) as writer:
        writer.execute(INSERT)
        with pytest.raises(CommandError, match="lock timeout"):
            run()
        with pytest.raises(CommandError, match="outbox cluster init"):
            run("--check")


@pytest.mark.usefixtures("alone_again")
def test_writers_go_on_meanwhile_and_no_id_is_drawn_between_two_schemes(
    become: Become, postgres: psycopg.Connection, database_url: str
) -> None:
    become(1)
    is_over = Event()

    def write() -> None:
        with psycopg.connect(database_url, autocommit=True) as writer:
            rest = 20
            while rest:
                writer.execute(INSERT)
                rest -= is_over.is_set()

    with ThreadPoolExecutor(4) as writers:
        written = [writers.submit(write) for _ in range(4)]
        eventually(lambda: OutboxRecord.objects.count() > 100, what="rows")
        run()
        is_over.set()
    assert [writer.result() for writer in written] == [None] * 4

    rows = postgres.execute("SELECT id, cluster_id FROM outbox").fetchall()
    before = [number for number, origin in rows if origin == 0]
    after = [number for number, origin in rows if origin == 1]
    assert len(before) + len(after) == len(rows)
    assert len(after) >= 80
    assert max(before) < min(after)
    assert {number % 3 for number in after} == {1}


def test_a_harvester_refuses_a_database_that_is_not_its_clusters(
    child_environment: dict[str, str],
) -> None:
    settings = {"DJANGO_SETTINGS_MODULE": "config.settings"}
    with Harvesters({**child_environment, **settings}) as harvesters:
        refused = harvesters.start(OUTBOX_CLUSTERS_COUNT="2")
        assert refused.exit_code() == 2
    assert refused.events == refused.output == []
    (line,) = refused.log
    assert "CLUSTER_ID: " in line
    assert "Run `manage.py outbox cluster init`." in line
