"""
How far refine has read bronze: what `maintain.py` may take away behind it.

The truth is in the checkpoint: the last committed batch names a version of
bronze, and all versions before it have been read. Of those from it on only
the ones that bring rows matter; compaction and deletion bring none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from . import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

NAME: Final = "refine"
"""The query that reads bronze."""

APPENDS: Final = ("WRITE", "STREAMING UPDATE")
"""What Delta's history calls the commits that bring rows."""

BEGINNINGS: Final = ("CREATE TABLE", *APPENDS)
"""What a table's history holds as long as nobody has rewritten its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The border between what refine has read and what it has not."""

    version: int
    """The newest version of bronze that has been read, with all before it."""
    waiting_since: datetime | None
    """When the oldest unread rows came, in UTC; None when all has been read."""

    def reached(self, spark: SparkSession, settings: PipelineSettings) -> DataFrame:
        """Columns topic, partition, reached: the last offsets that were read."""
        bronze = spark.read.format("delta").option("versionAsOf", self.version)
        rows = bronze.load(settings.table_path("bronze"))
        return rows.groupBy("topic", "partition").agg(F.max("offset").alias("reached"))


def find(spark: SparkSession, settings: PipelineSettings) -> Position | None:
    """Look how far refine has come; None before it has read all that it first found."""
    batch = last_batch(spark, settings)
    if batch is None:
        return None
    path = f"{settings.checkpoint(NAME)}/offsets/{batch}"
    # The last line is the source's own: where the next batch begins.
    offset = json.loads(spark.read.text(path).collect()[-1]["value"])
    if offset["isStartingVersion"]:
        return None
    # An index above the base stands within a version: it is not read to its end.
    begin = int(offset["reservoirVersion"])
    bronze = tables.name(settings, "bronze")
    newest = spark.sql(f"DESCRIBE HISTORY {bronze} LIMIT 1").collect()[0]["version"]
    unread = []
    if newest >= begin:
        rows = spark.sql(f"DESCRIBE HISTORY {bronze} LIMIT {newest - begin + 1}")
        unread = [
            (row["version"], row["micros"])
            for row in rows.selectExpr(
                "version", "operation", "unix_micros(timestamp) AS micros"
            ).collect()
            if row["operation"] in APPENDS and row["version"] >= begin
        ]
    if not unread:
        return Position(version=newest, waiting_since=None)
    version, micros = min(unread)
    since = datetime.fromtimestamp(micros / 1_000_000, tz=UTC)
    return Position(version=version - 1, waiting_since=since)


def run_id(spark: SparkSession, settings: PipelineSettings) -> str:
    """
    The id that Spark gave to the checkpoint.

    A new checkpoint counts its batches from 0 again; under the old id their
    appends would be skipped.
    """
    lines = spark.read.text(f"{settings.checkpoint(NAME)}/metadata").collect()
    return str(json.loads(lines[0]["value"])["id"])


def last_batch(
    spark: SparkSession, settings: PipelineSettings, query: str = NAME
) -> int | None:
    """Return the number of the last batch that a query has committed."""
    reader = spark.read.option("ignoreMissingFiles", "true")
    try:
        files = (
            reader.text(f"{settings.checkpoint(query)}/commits")
            .select(F.max(F.col("_metadata.file_name").cast("bigint")).alias("last"))
            .collect()
        )
    except AnalysisException:
        # There is no checkpoint yet.
        return None
    last = files[0]["last"]
    return None if last is None else int(last)


def is_as_written(spark: SparkSession, settings: PipelineSettings) -> bool:
    """Whether bronze's files still follow each other in the order of their rows."""
    history = spark.sql(f"DESCRIBE HISTORY {tables.name(settings, 'bronze')}")
    seen = history.select("version", "operation").collect()
    return all(row["operation"] in BEGINNINGS for row in seen) and any(
        row["version"] == 0 for row in seen
    )
