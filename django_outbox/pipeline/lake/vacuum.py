"""Deletes all files of a table that its current version does not use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETENTION_CHECK: Final = "spark.databricks.delta.retentionDurationCheck.enabled"
"""Property that refuses a `VACUUM` of files younger than a week."""


def vacuum_now(spark: SparkSession, name: str) -> None:
    """
    Delete the unused files, whatever their age.

    Queries that still read an older version fail, and so would a writer whose new
    files no version uses yet: nothing else may read or write the table.

    Args:
        name: The table's name in SQL.
    """
    with _any_retention(spark):
        spark.sql(f"VACUUM {name} RETAIN 0 HOURS").collect()


@contextmanager
def _any_retention(spark: SparkSession) -> Iterator[None]:
    before = str(spark.conf.get(RETENTION_CHECK, "true"))
    spark.conf.set(RETENTION_CHECK, "false")
    try:
        yield
    finally:
        spark.conf.set(RETENTION_CHECK, before)
