"""
How far refine has read bronze, so that maintenance knows what it may delete.

The checkpoint says so: its last committed batch names a version of bronze, and
all versions before it have been read. Of the later versions only those that
append rows are unread; compactions and deletions append none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from . import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

NAME: Final = "refine"
"""Name of the query that reads bronze."""

APPENDS: Final = ("WRITE", "STREAMING UPDATE")
"""Operations in Delta's history that append rows."""

BEFORE_REWRITES: Final = ("CREATE TABLE", *APPENDS)
"""Operations in Delta's history of a table whose files were never rewritten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The boundary between read and unread rows of bronze."""

    version: int
    """Refine has read all versions of bronze up to this one."""
    waiting_since: datetime | None
    """When the oldest unread rows were appended, in UTC; None if all are read."""

    def reached(self, spark: SparkSession, settings: PipelineSettings) -> DataFrame:
        """Return the last offsets that were read: topic, partition, reached."""
        rows = tables.read(spark, settings, "bronze", version=self.version)
        return rows.groupBy("topic", "partition").agg(F.max("offset").alias("reached"))


def find(spark: SparkSession, settings: PipelineSettings) -> Position | None:
    """Return how far refine has read; None until its initial snapshot is done."""
    batch = last_batch(spark, settings)
    if batch is None:
        return None
    offset = source_offset(spark, settings, NAME, batch)
    if offset["isStartingVersion"]:
        return None
    # The offset may point into the middle of a version; that counts as unread.
    begin = int(offset["reservoirVersion"])
    bronze = tables.name(settings, "bronze")
    newest = tables.newest_version(spark, settings, "bronze")
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


def run_id(
    spark: SparkSession, settings: PipelineSettings, checkpoint: str = NAME
) -> str:
    """
    Return the id that Spark gave to a checkpoint.

    A new checkpoint numbers its batches from 0; with the old id, Delta would
    skip their appends.
    """
    lines = spark.read.text(f"{settings.checkpoint(checkpoint)}/metadata").collect()
    return str(json.loads(lines[0]["value"])["id"])


def source_offset(
    spark: SparkSession, settings: PipelineSettings, query: str, batch: int
) -> dict[str, Any]:
    """Return the offset at which a batch of a query ends, as its source writes it."""
    lines = spark.read.text(f"{settings.checkpoint(query)}/offsets/{batch}").collect()
    # Above it are lines about the query.
    return dict(json.loads(lines[-1]["value"]))


def last_batch(
    spark: SparkSession,
    settings: PipelineSettings,
    query: str = NAME,
    *,
    log: str = "commits",
) -> int | None:
    """
    Return the number of a query's last committed batch; None before the first.

    Args:
        log: "offsets" for the last planned batch, which may not be committed.
    """
    reader = spark.read.option("ignoreMissingFiles", "true")
    try:
        files = (
            reader.text(f"{settings.checkpoint(query)}/{log}")
            .select(F.max(F.col("_metadata.file_name").cast("bigint")).alias("last"))
            .collect()
        )
    except AnalysisException:
        # There is no checkpoint yet.
        return None
    last = files[0]["last"]
    return None if last is None else int(last)


def is_changing(spark: SparkSession, settings: PipelineSettings) -> bool:
    """Return whether a batch or a rebuild has written to some tables, not to all."""
    ended = last_batch(spark, settings)
    is_in_batch = last_batch(spark, settings, log="offsets") != ended
    return is_in_batch or _is_rebuilding(spark, settings)


def _is_rebuilding(spark: SparkSession, settings: PipelineSettings) -> bool:
    properties = tables.detail(spark, settings, "silver")["properties"]
    return bool(properties.get(tables.REBUILDING) == "yes")


def reason_to_rebuild(spark: SparkSession, settings: PipelineSettings) -> str:
    """Return why refine needs the tables made again from bronze; empty: it does not."""
    if _is_rebuilding(spark, settings):
        # It would append what new tables have and old ones do not know.
        return "A rebuild died while it replaced the tables, so it begins again."
    if (
        last_batch(spark, settings) is None
        and not _is_as_written(spark, settings)
        and rebuilt_from(spark, settings) is None
    ):
        return "Refine starts over on compacted rows, so it rebuilds the tables first."
    return ""


def rebuilt_from(spark: SparkSession, settings: PipelineSettings) -> int | None:
    """
    Return the version of bronze from which a rebuild has made the other tables.

    None if there was no rebuild, if Delta's log no longer has that version, or if
    files were rewritten since: those that refine would begin with may be gone.
    """
    properties = tables.detail(spark, settings, "silver")["properties"]
    if (version := properties.get(tables.REBUILT_FROM)) is None:
        return None
    since = _history(spark, settings).where(F.col("version") >= int(version)).collect()
    is_there = any(row["version"] == int(version) for row in since)
    are_appends = all(
        row["operation"] in APPENDS or row["version"] == int(version) for row in since
    )
    return int(version) if is_there and are_appends else None


def _is_as_written(spark: SparkSession, settings: PipelineSettings) -> bool:
    """Whether bronze's files are still in the order in which rows were appended."""
    seen = _history(spark, settings).select("version", "operation").collect()
    return all(row["operation"] in BEFORE_REWRITES for row in seen) and any(
        row["version"] == 0 for row in seen
    )


def _history(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    return spark.sql(f"DESCRIBE HISTORY {tables.name(settings, 'bronze')}")
