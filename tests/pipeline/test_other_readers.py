"""Engines without Spark read the tables; `latest`, too, without deletion vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.pipeline_settings import PipelineSettings

from .lakes import FilledLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Both need 75 MB: the nightly run installs them.
deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")


OFF = "'delta.enableDeletionVectors' = false"


def read(settings: PipelineSettings, table: str) -> list[tuple[Any, ...]]:
    """Read keys and offsets with DuckDB, by way of delta-rs."""
    rows = deltalake.DeltaTable(settings.table_path(table)).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        query = 'SELECT "key", "offset" FROM rows ORDER BY "offset"'
        return connection.execute(query).fetchall()


def test_other_engines_read_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    settings = PipelineSettings(lake=str(tmp_path), deletion_vectors=False)
    lake = FilledLake(spark, settings)
    for messages in (((1, b"a"), (2, b"b")), ((4, b"a"), (3, b"a"))):
        lake.put_values(*((id, "orders", key, b"{}") for id, key in messages))
        lake.refine()
    for table in ("bronze", "silver", "late", "latest"):
        rows = tables.read(spark, settings, table).orderBy("offset").collect()
        expected = [(bytes(row["key"]), row["offset"]) for row in rows]
        assert read(settings, table) == expected
    # Changed in place, and so without them.
    assert read(settings, "latest") == [(b"b", 1), (b"a", 2)]


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
