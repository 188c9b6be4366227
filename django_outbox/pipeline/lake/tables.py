"""
The tables of the lake: their columns, their paths, their names in SQL.

All are Delta tables below the lake's folder. `create()` creates missing tables
and does not change existing ones.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..pipeline_settings import PipelineSettings
from .conflicts import retry_conflicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

HEADERS: Final = "ARRAY<STRUCT<key: STRING, value: BINARY>>"

_POSITION: Final = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"

_RECORD: Final = (
    f"source STRING, id BIGINT, message_id STRING, created_at TIMESTAMP,"
    f" {_POSITION}, key BINARY, value BINARY, is_deleted BOOLEAN, headers {HEADERS}"
)

SCHEMAS: Final = {
    "bronze": f"{_POSITION}, timestamp_type INT, key BINARY, value BINARY,"
    f" headers {HEADERS}",
    "silver": _RECORD,
    "late": f"{_RECORD}, mark BIGINT",
    "latest": _RECORD,
    "quarantine": f"reason STRING, {_POSITION}, key BINARY, value BINARY,"
    f" headers {HEADERS}",
}
"""The columns of each table."""

BRONZE_COLUMNS: Final = (
    *("topic", "partition", "offset", "timestamp", "timestamp_type"),
    *("key", "value", "headers"),
)
"""The columns of `bronze`, in order."""

RECORD_COLUMNS: Final = (
    *("source", "id", "message_id", "created_at"),
    *("topic", "partition", "offset", "timestamp"),
    *("key", "value", "is_deleted", "headers"),
)
"""The columns of `silver`, in order."""

INDEXED: Final = "delta.dataSkippingNumIndexedCols"
"""Property with the number of leading columns that have statistics."""

RECORD_INDEXED: Final = 9
"""That number for a table with `RECORD_COLUMNS`."""

_INDEXED: Final = {
    "bronze": 4,
    "silver": RECORD_INDEXED,
    "late": RECORD_INDEXED,
    "latest": RECORD_INDEXED,
    "quarantine": 5,
}
"""
Number of leading columns with statistics, by which queries skip whole files.

Statistics of the contents, which come last, would be useless and slow down
each append.
"""


REBUILT_FROM: Final = "django_outbox.bronze_version"
"""Property of silver: the version of bronze that a rebuild has read, if any."""

REBUILDING: Final = "django_outbox.rebuilding"
"""Property of silver: `yes` while a rebuild replaces one table after the other."""


def create(spark: SparkSession, settings: PipelineSettings) -> None:
    """Create missing tables."""
    for table, columns in SCHEMAS.items():
        properties = {INDEXED: str(_INDEXED[table])}
        if table == "latest" and settings.deletion_vectors:
            # It is updated in place: rows are marked as deleted, files not rewritten.
            properties["delta.enableDeletionVectors"] = "true"
        if table == "latest" and settings.change_data_feed:
            properties["delta.enableChangeDataFeed"] = "true"
        pairs = ", ".join(f"'{key}' = '{text}'" for key, text in properties.items())
        statement = (
            f"CREATE TABLE IF NOT EXISTS {name(settings, table)}"
            f" ({columns}) USING delta TBLPROPERTIES ({pairs})"
        )
        retry_conflicts(partial(spark.sql, statement))


def name(settings: PipelineSettings, table: str) -> str:
    """Return the table's name in SQL."""
    return f"delta.`{settings.table_path(table)}`"


def read(
    spark: SparkSession,
    settings: PipelineSettings,
    table: str,
    *,
    version: int | None = None,
) -> DataFrame:
    """Read a version of a table; None for the current one."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(settings.table_path(table))


def detail(spark: SparkSession, settings: PipelineSettings, table: str) -> Row:
    """Return number and size of a table's files, and its properties."""
    return spark.sql(f"DESCRIBE DETAIL {name(settings, table)}").collect()[0]


def newest_version(spark: SparkSession, settings: PipelineSettings, table: str) -> int:
    """Return the number of a table's last commit."""
    history = spark.sql(f"DESCRIBE HISTORY {name(settings, table)} LIMIT 1")
    return int(history.collect()[0]["version"])


def literal(text: str) -> str:
    """Return a text as SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def current(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """Read the newest state of each key that is not deleted."""
    return read(spark, settings, "latest").where("NOT is_deleted").drop("is_deleted")


def register_views(spark: SparkSession, settings: PipelineSettings) -> None:
    """Create a temporary view for each table, and `current`."""
    for table in SCHEMAS:
        read(spark, settings, table).createOrReplaceTempView(table)
    current(spark, settings).createOrReplaceTempView("current")
