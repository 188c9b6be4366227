"""
The tables of the lake: their columns, where they lie, how SQL names them.

All are Delta tables below the lake's folder. `create()` makes what is missing
and changes nothing that is there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..pipeline_settings import PipelineSettings
from .conflicts import again

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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

RECORD_COLUMNS: Final = (
    *("source", "id", "message_id", "created_at"),
    *("topic", "partition", "offset", "timestamp"),
    *("key", "value", "is_deleted", "headers"),
)
"""The columns of `silver`, in order."""

_INDEXED: Final = {
    "bronze": 4,
    "silver": 9,
    "late": 9,
    "latest": 9,
    "quarantine": 5,
}
"""
The first columns of each table: by them queries pass over whole files.

They end before the contents; for these statistics are of no use, and cost time
with each append.
"""

_PROPERTIES: Final = {"latest": {"delta.enableDeletionVectors": "true"}}
"""`latest` is updated in place: rows are marked, files are not rewritten."""


def create(spark: SparkSession, settings: PipelineSettings) -> None:
    """Make the tables that are missing."""
    for table, columns in SCHEMAS.items():
        properties = {
            "delta.dataSkippingNumIndexedCols": str(_INDEXED[table]),
            **_PROPERTIES.get(table, {}),
        }
        pairs = ", ".join(f"'{key}' = '{text}'" for key, text in properties.items())
        statement = (
            f"CREATE TABLE IF NOT EXISTS {name(settings, table)}"
            f" ({columns}) USING delta TBLPROPERTIES ({pairs})"
        )
        again(partial(spark.sql, statement))


def name(settings: PipelineSettings, table: str) -> str:
    """The table as SQL names it."""
    return f"delta.`{settings.table_path(table)}`"


def read(spark: SparkSession, settings: PipelineSettings, table: str) -> DataFrame:
    """The table as it is now."""
    return spark.read.format("delta").load(settings.table_path(table))


def current(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """The newest state of each key that is not deleted."""
    return read(spark, settings, "latest").where("NOT is_deleted").drop("is_deleted")


def register_views(spark: SparkSession, settings: PipelineSettings) -> None:
    """Give SQL of this session every table by its name, and `current`."""
    for table in SCHEMAS:
        read(spark, settings, table).createOrReplaceTempView(table)
    current(spark, settings).createOrReplaceTempView("current")
