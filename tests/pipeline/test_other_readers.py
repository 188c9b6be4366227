"""Engines without Spark read the tables; `latest`, too, without deletion vectors."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.pipeline_run import run_once
from django_outbox.pipeline.pipeline_settings import PipelineSettings

from .lakes import outbox_headers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Both need 75 MB: the nightly run installs them.
deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")


OFF = "'delta.enableDeletionVectors' = false"


def load(
    spark: SparkSession, settings: PipelineSettings, *messages: tuple[int, bytes]
) -> None:
    """Append messages (id, key) to bronze, and refine them; the id is the offset."""
    tables.create(spark, settings)
    rows = [
        ("orders", 0, id, datetime.now(UTC), 0, key, b"{}", outbox_headers(id))
        for id, key in messages
    ]
    frame = spark.createDataFrame(rows, tables.SCHEMAS["bronze"]).coalesce(1)
    frame.write.format("delta").mode("append").save(settings.table_path("bronze"))
    run_once(spark, settings, stop=threading.Event(), steps=("refine",))


def read(settings: PipelineSettings, table: str) -> list[tuple[Any, ...]]:
    """Read keys and offsets with DuckDB, by way of delta-rs."""
    rows = deltalake.DeltaTable(settings.table_path(table)).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        query = 'SELECT "key", "offset" FROM rows ORDER BY "offset"'
        return connection.execute(query).fetchall()


def test_other_engines_read_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    settings = PipelineSettings(lake=str(tmp_path), deletion_vectors=False)
    load(spark, settings, (1, b"a"), (2, b"b"))
    load(spark, settings, (4, b"a"), (3, b"a"))
    for table in ("bronze", "silver", "late", "latest"):
        rows = tables.read(spark, settings, table).orderBy("offset").collect()
        expected = [(bytes(row["key"]), row["offset"]) for row in rows]
        assert read(settings, table) == expected
    # Changed in place, and so without them.
    assert read(settings, "latest") == [(b"b", 2), (b"a", 4)]


def test_deletion_vectors_can_be_dropped(spark: SparkSession, tmp_path: Path) -> None:
    """As the how-to says; with them, delta-rs refuses the table."""
    settings = PipelineSettings(lake=str(tmp_path))
    tables.create(spark, settings)
    with pytest.raises(deltalake.exceptions.DeltaProtocolError, match="deletionVec"):
        read(settings, "latest")
    name = tables.name(settings, "latest")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({OFF})")
    spark.sql(f"REORG TABLE {name} APPLY (PURGE)")
    spark.sql(f"ALTER TABLE {name} DROP FEATURE deletionVectors")
    assert read(settings, "latest") == []
