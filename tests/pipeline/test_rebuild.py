"""Tables made again from bronze, in slices, beside those that a refine has made."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_outbox.exceptions import BronzeIncomplete, LakeInUse
from django_outbox.pipeline.lake import rebuilding, tables
from django_outbox.pipeline.lake.reader import is_changing, reason_to_rebuild
from django_outbox.pipeline.lake.rebuilding import Slice
from django_outbox.pipeline.pipeline_run import Hooks, start_step
from django_outbox.pipeline.pipeline_settings import PipelineSettings

from ..machine import nightly
from .lakes import NOW, Contents, FilledLake, lost_after

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@nightly
def test_a_rebuild_makes_the_same_tables_and_refine_goes_on_behind_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = FilledLake(spark, PipelineSettings(lake=str(tmp_path / "lake")))
    lake.put(1, 4, key="a")
    lake.put(2, 5, key="b")
    lake.put(3, 12, 14, 13, 14, 15)
    lake.put_unidentified()
    lake.refine()
    before = Contents(spark, lake.settings)
    assert before.ids("late", lake.topic) == [13]
    for table in ("silver", "latest"):
        name = tables.name(lake.settings, table)
        spark.sql(f"DELETE FROM {name} WHERE offset > 1")

    size = tables.detail(spark, lake.settings, "bronze")["sizeInBytes"]
    monkeypatch.setattr(rebuilding, "SLICE_BYTES", -(-size // 3))
    slices: list[Slice] = []
    for done in rebuilding.rebuild(spark, lake.settings):
        slices.append(done)
        assert tables.read(spark, lake.settings, "latest").count() == 1
    assert [done.number for done in slices] == [1, 2, 3]
    rows = [done.counts.rows for done in slices]
    assert sum(rows) == before.count("bronze")
    assert max(rows) < sum(rows)
    after = Contents(spark, lake.settings)
    for table in rebuilding.REBUILT:
        assert after.rows(table) == before.rows(table)
    beside = lake.settings.table_path("_rebuild")
    assert not [*Path(beside).rglob("*.parquet")]

    lake.put(16, 17)
    lake.lose_checkpoint("refine")
    (counts,) = lake.refine()
    # The last commit that the rebuild has read is read again.
    assert (counts.rows, counts.copies, counts.quarantined) == (3, 0, 0)
    before = Contents(spark, lake.settings)
    assert before.count("silver") == after.count("silver") + 2

    spark.sql(f"DELETE FROM {tables.name(lake.settings, 'bronze')} WHERE offset = 0")
    monkeypatch.undo()
    with pytest.raises(BronzeIncomplete, match="lacks 1 messages"):
        list(rebuilding.rebuild(spark, lake.settings))
    silver = tables.read(spark, lake.settings, "silver")
    assert silver.count() == before.count("silver")


def test_a_rebuild_that_died_between_two_tables_is_done_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Silver would have messages that the old `latest` does not know."""
    lake = FilledLake(spark, PipelineSettings(lake=str(tmp_path / "lake")))
    lake.put(1)
    lake.refine()
    lake.put(2)
    # Before the old files go, the slice, the mark, quarantine and silver.
    check = lost_after(looks=5)
    with pytest.raises(LakeInUse):
        list(rebuilding.rebuild(spark, lake.settings, check=check))
    assert lake.ids("silver") == [1, 2]
    assert lake.ids("latest") == [1]
    assert is_changing(spark, lake.settings)

    lake.refine()
    assert lake.ids("silver") == [1, 2]
    assert lake.ids("latest") == [2]
    assert not is_changing(spark, lake.settings)
    assert reason_to_rebuild(spark, lake.settings) == ""


def test_a_rebuild_keeps_the_state_of_keys_that_have_been_quiet_for_long(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Their last messages have left bronze and silver; `latest` is never deleted."""
    lake = FilledLake(
        spark,
        PipelineSettings(lake=str(tmp_path / "lake"), bronze_days=30, silver_days=30),
    )
    lake.put(1, key="quiet", days=40)
    lake.put(2, key="busy")
    lake.refine()
    lake.maintain("bronze", "silver")
    before = Contents(spark, lake.settings)
    assert (before.ids("silver", lake.topic), before.count("latest")) == ([2], 2)

    list(rebuilding.rebuild(spark, lake.settings))

    after = Contents(spark, lake.settings)
    assert after.rows("latest") == before.rows("latest")
    assert after.ids("silver", lake.topic) == [2]


def test_files_of_a_rebuild_that_died_while_it_split_bronze_are_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`forget` has to find them: no version of a table has them yet."""
    lake = FilledLake(spark, PipelineSettings(lake=str(tmp_path / "lake")))
    lake.put(1, 2)
    lake.refine()
    monkeypatch.setattr(rebuilding, "SLICE_BYTES", 1)
    left = Path(lake.settings.table_path("_rebuild")) / "slices" / "part-killed.parquet"
    bronze = next(Path(lake.settings.table_path("bronze")).glob("*.parquet"))

    class Killed(Exception):
        """The process is killed."""

    def die(*_: object) -> None:
        left.parent.mkdir(exist_ok=True)
        shutil.copy(bronze, left)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(type(spark.range(1)), "repartition", die)
        list(rebuilding.rebuild(spark, lake.settings))
    assert left.exists()

    rebuilding.discard(spark, lake.settings)
    assert not left.exists()


@nightly
def test_a_refine_without_checkpoint_behind_rewritten_files_rebuilds_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And a process that loses the lake meanwhile changes no table any more."""
    lake = FilledLake(spark, PipelineSettings(lake=str(tmp_path / "lake")))
    lake.put(1)
    assert len(list(rebuilding.rebuild(spark, lake.settings))) == 1
    lake.put(2)
    lake.refine()
    lake.maintain("bronze")
    lake.lose_checkpoint("refine")
    before = Contents(spark, lake.settings)
    # Before the slice, which is the only one, and before each table.
    check = lost_after(looks=2)
    with pytest.raises(LakeInUse):
        start_step("refine", spark, lake.settings, NOW, {}, hooks=Hooks(check=check))
    for table in rebuilding.REBUILT:
        assert Contents(spark, lake.settings).rows(table) == before.rows(table)

    # The rebuild has read all; refine reads its last commit again.
    lake.refine()
    assert lake.ids("silver") == [1, 2]
    lake.put(3)
    lake.refine()
    assert lake.ids("silver") == [1, 2, 3]
    assert lake.ids("late") == []
