"""Tables made again from bronze, in slices, beside those that a refine has made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_outbox.exceptions import BronzeIncomplete
from django_outbox.pipeline.lake import rebuild, tables
from django_outbox.pipeline.lake.rebuild import Slice
from django_outbox.pipeline.pipeline_settings import PipelineSettings

from .lakes import Contents, FilledLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_rebuild_makes_the_same_tables_and_refine_goes_on_behind_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = FilledLake(spark, PipelineSettings(lake=str(tmp_path / "lake")))
    for number in range(3):
        lake.put(10 * number + 1, 10 * number + 4, key=f"key-{number}")
    lake.put(2, 4, 12, 14)
    lake.put(13, 14, 15)
    lake.put_unidentified()
    lake.refine()
    before = Contents(spark, lake.settings)
    assert before.ids("late", lake.topic) == [13]
    lake.maintain("bronze")
    for table in rebuild.REBUILT:
        name = tables.name(lake.settings, table)
        spark.sql(f"DELETE FROM {name} WHERE offset % 2 = 0")

    size = tables.detail(spark, lake.settings, "bronze")["sizeInBytes"]
    monkeypatch.setattr(rebuild, "SLICE_BYTES", -(-size // 3))
    slices: list[Slice] = []
    for done in rebuild.rebuild(spark, lake.settings):
        slices.append(done)
        assert tables.read(spark, lake.settings, "latest").count() < 4
    assert [done.number for done in slices] == [1, 2, 3]
    rows = [done.counts.rows for done in slices]
    assert sum(rows) == before.count("bronze")
    assert max(rows) < sum(rows)
    after = Contents(spark, lake.settings)
    for table in rebuild.REBUILT:
        assert after.rows(table) == before.rows(table)
    beside = lake.settings.table_path("_rebuild")
    assert not [*Path(beside).rglob("*.parquet")]

    lake.put(16, 17)
    lake.lose_checkpoint("refine")
    (counts,) = lake.refine()
    assert (counts.rows, counts.copies) == (2, 0)
    before = Contents(spark, lake.settings)
    assert before.count("silver") == after.count("silver") + 2

    spark.sql(f"DELETE FROM {tables.name(lake.settings, 'bronze')} WHERE offset = 0")
    monkeypatch.undo()
    with pytest.raises(BronzeIncomplete, match="lacks 1 messages"):
        list(rebuild.rebuild(spark, lake.settings))
    after = Contents(spark, lake.settings)
    assert after.rows("silver") == before.rows("silver")
