"""Maintenance beside a reader that lags, beside one that runs, and before a new one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_outbox.exceptions import LakeInUse
from django_outbox.pipeline import commands
from django_outbox.pipeline.__main__ import main
from django_outbox.pipeline.lake import maintenance, reader, tables
from django_outbox.pipeline.lake.conflicts import is_conflict, retry_conflicts
from django_outbox.pipeline.lake.refine import start_refine
from django_outbox.pipeline.pipeline_settings import PipelineSettings

from ..machine import nightly
from .lakes import Contents, FilledLake, lost_after

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> FilledLake:
    return FilledLake(spark, PipelineSettings(lake=str(tmp_path / "lake")))


def test_who_has_lost_the_lease_changes_nothing_more(lake: FilledLake) -> None:
    lake.settings = replace(lake.settings, silver_days=20)
    lake.put(1, days=40)
    lake.refine()
    # Before each table, and before its compaction and vacuum.
    check = lost_after(looks=3)
    maintained = maintenance.maintain(
        lake.spark, lake.settings, names=("latest", "silver"), check=check
    )
    assert next(maintained).table == "latest"
    with pytest.raises(LakeInUse):
        next(maintained)
    assert lake.ids("silver") == [1]


def test_a_table_that_others_write_all_the_time_does_not_stop_the_next_one(
    lake: FilledLake,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake.settings = replace(lake.settings, silver_days=20)
    lake.put(1, 2, days=40)
    lake.refine()
    monkeypatch.setattr(commands.maintain, "session", lambda _: nullcontext(lake.spark))
    calls = itertools.count(1)

    def retry(work: Callable[[], Any]) -> Any:
        # The second one compacts silver; the first one has deleted its rows.
        if next(calls) == 2:
            raise RuntimeError("[DELTA_CONCURRENT_DELETE_READ] again and again")
        return work()

    monkeypatch.setattr(maintenance, "retry_conflicts", retry)
    config = Path(lake.settings.lake).with_name("pipeline.toml")
    config.write_text(f"lake = {lake.settings.lake!r}\nsilver_days = 20\n")

    names = ("--table=silver", "--table=late")
    assert main(["maintain", f"--config={config}", *names]) == 1

    out, err = capsys.readouterr()
    silver, late = out.splitlines()
    assert silver.startswith("silver: 2 rows deleted")
    assert silver.endswith("(not finished: 10 conflicts with another writer)")
    assert late.startswith("late: 0 rows deleted")
    assert "Not finished: silver. Run it again" in err


@nightly
def test_nothing_is_taken_from_a_reader_that_lags(
    lake: FilledLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.settings = replace(lake.settings, bronze_days=30, silver_days=20)
    lake.put(1, 2, days=40)
    (bronze,) = lake.maintain("bronze")
    assert (bronze.table, bronze.note) == (
        "bronze",
        "skipped: refine has not read it yet",
    )
    lake.put(3, days=40)
    lake.put(4, 5)
    lake.refine()
    # As old, but not read yet.
    lake.put(6, days=40)
    lake.put(7)
    names = ("bronze", "silver", "latest")
    dry_run = lake.maintain(*names, dry_run=True)
    planned = {done.table: done.rows_deleted for done in dry_run}
    assert planned == {"bronze": 3, "silver": 3, "latest": 0}
    assert lake.ids("bronze") == [1, 2, 3, 4, 5, 6, 7]

    monkeypatch.setattr(maintenance, "MAX_UNREAD_AGE", timedelta())
    found = {done.table: done for done in lake.maintain(*names, cluster=True)}
    assert {done.table: done.rows_deleted for done in found.values()} == planned
    assert lake.ids("bronze") == [4, 5, 6, 7]
    assert lake.ids("silver") == [4, 5]
    assert lake.ids("latest") == [5]
    assert found["bronze"].note.startswith("not vacuumed: refine has unread rows")
    assert found["bronze"].files_after == found["silver"].files_after == 1
    assert found["bronze"].files_before == 5

    lake.put(8)
    lake.refine()
    assert lake.ids("silver") == [4, 5, 6, 7, 8]
    assert lake.ids("late") == []
    position = reader.find(lake.spark, lake.settings)
    assert position is not None
    assert position.waiting_since is None
    assert [done.note for done in lake.maintain("bronze")] == [""]


@nightly
def test_a_refine_that_begins_anew_takes_compacted_files_in_order(
    lake: FilledLake,
) -> None:
    conf, name = lake.spark.conf, "spark.databricks.delta.optimize.maxFileSize"
    # The small files are packed into one that is younger than the others.
    for id, length in ((1, 1), (2, 30_000), (3, 1), (4, 30_000)):
        lake.put(id, length=length)
    lake.refine()
    conf.set(name, "20000")
    try:
        (bronze,) = lake.maintain("bronze")
    finally:
        conf.unset(name)
    assert (bronze.files_before, bronze.files_after) == (4, 3)
    lake.lose_refined()
    lake.settings = replace(lake.settings, batch_files=1)
    lake.refine()
    assert lake.ids("silver") == [1, 2, 3, 4]
    assert lake.ids("late") == []


@nightly
def test_a_running_pipeline_and_maintenance_do_not_disturb_each_other(
    lake: FilledLake,
) -> None:
    lake.put(1)
    trigger = {"processingTime": "0 seconds"}
    query = start_refine(lake.spark, lake.settings, trigger=trigger)
    try:
        for id in range(2, 6, 2):
            lake.put(id, id + 1)
            lake.maintain("bronze", "silver", "latest", cluster=id == 4)
        query.processAllAvailable()
    finally:
        query.stop()
    assert query.exception() is None
    contents = Contents(lake.spark, lake.settings)
    assert contents.count("bronze") == 5
    assert contents.ids("silver", lake.topic) == list(range(1, 6))
    assert contents.ids("late", lake.topic) == []
    assert contents.ids("latest", lake.topic) == [5]


@nightly
def test_of_writers_that_meet_all_come_through(lake: FilledLake) -> None:
    lake.put(1)
    name = tables.name(lake.settings, "bronze")
    start, errors = threading.Barrier(3), []

    def raise_offset(*, patiently: bool) -> None:
        start.wait()
        attempts = {} if patiently else {"attempts": 1}
        text = f"UPDATE {name} SET offset = offset + 1"
        try:
            retry_conflicts(lambda: lake.spark.sql(text).collect(), **attempts)
        except Exception as error:
            errors.append(error)

    for patiently, expected in ((True, 3), (False, None)):
        threads = [
            threading.Thread(target=raise_offset, kwargs={"patiently": patiently})
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if expected:
            assert errors == []
            (row,) = tables.read(lake.spark, lake.settings, "bronze").collect()
            assert row["offset"] == expected
    # Without patience one comes through for certain; another has met it.
    assert all(is_conflict(error) for error in errors)


def test_of_two_first_runs_both_find_their_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = PipelineSettings(lake=str(tmp_path))
    start = threading.Barrier(2)

    def create() -> None:
        start.wait()
        tables.create(spark, settings)

    with ThreadPoolExecutor(2) as pool:
        for made in [pool.submit(create) for _ in range(2)]:
            made.result()
    contents = Contents(spark, settings)
    assert all(contents.count(table) == 0 for table in tables.SCHEMAS)
