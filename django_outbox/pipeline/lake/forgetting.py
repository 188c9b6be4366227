"""
Erases every row with one message key from the lake, and counts what is left.

Deleting a row leaves it in the files of earlier versions. So for each table whose
files have the key:

1. delete the rows. The key is joined from a view, because Delta's log keeps the
   text of a statement for a month;
2. rewrite files whose rows are only marked as deleted (deletion vectors);
3. delete all files that the current version does not use, whatever their age
   (`VACUUM`). Queries that still read an older version fail, and so would a
   writer whose new files no version uses yet: nothing else may write.

Refine must have read all of bronze before: it follows the commits of bronze,
and would miss the files of the unread ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from . import tables, typed_tables
from .vacuum import vacuum_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureResult:
    """What was erased from one table, or would be in a dry run."""

    table: str
    rows: int
    """Rows that had the key."""
    rows_left: int = 0
    """Rows of the current version that still have it."""
    files_left: int = 0
    """Data files in the table's folder that still have it."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing with the key is left."""
        return not (self.rows_left or self.files_left)

    def __str__(self) -> str:
        return (
            f"{self.table}: {self.rows:,} rows erased; left: rows {self.rows_left:,},"
            f" files {self.files_left:,}"
        )


def find(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    key: bytes,
    topics: Sequence[str] = (),
) -> Iterator[ErasureResult]:
    """Count the rows with the key in each table; change nothing."""
    for table in typed_tables.all_tables(spark, settings):
        rows = _count_rows(spark, settings, table, key, topics)
        yield ErasureResult(table=table, rows=rows)


def erase(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    key: bytes,
    topics: Sequence[str] = (),
    check: Callable[[], None],
) -> Iterator[ErasureResult]:
    """
    Erase the key from one table after the other, and yield each result.

    Args:
        topics: Only records of these topics; empty = of all.
        check: Called before files are deleted; must raise if this process may no
            longer be the only writer.

    Raises:
        LakeInUse: `check` has raised it; call again to go on.
    """
    for table in typed_tables.all_tables(spark, settings):
        name, rows = tables.name(settings, table), 0
        if _count_rows(spark, settings, table, key, topics):
            rows = _delete(spark, name, key, topics)
        if files := _count_files(spark, settings, table, key, topics):
            spark.sql(f"REORG TABLE {name} APPLY (PURGE)").collect()
            check()
            vacuum_now(spark, name)
            files = _count_files(spark, settings, table, key, topics)
        yield ErasureResult(
            table=table,
            rows=rows,
            rows_left=_count_rows(spark, settings, table, key, topics),
            files_left=files,
        )


def _with_key(rows: DataFrame, key: bytes, topics: Sequence[str]) -> DataFrame:
    rows = rows.where(F.col("key") == F.lit(key))
    return rows.where(F.col("topic").isin(*topics)) if topics else rows


def _count_rows(
    spark: SparkSession,
    settings: PipelineSettings,
    table: str,
    key: bytes,
    topics: Sequence[str],
) -> int:
    return _with_key(tables.read(spark, settings, table), key, topics).count()


def _delete(spark: SparkSession, name: str, key: bytes, topics: Sequence[str]) -> int:
    pairs = [(topic, key) for topic in topics or (None,)]
    erased = spark.createDataFrame(pairs, "topic STRING, key BINARY")
    erased.createOrReplaceTempView("outbox_erased")
    text = f"""
        MERGE INTO {name} AS t
        USING outbox_erased AS e
        ON t.key = e.key AND (e.topic IS NULL OR t.topic = e.topic)
        WHEN MATCHED THEN DELETE
        """
    return int(spark.sql(text).collect()[0]["num_deleted_rows"])


def _count_files(
    spark: SparkSession,
    settings: PipelineSettings,
    table: str,
    key: bytes,
    topics: Sequence[str],
) -> int:
    """Count the data files with the key, also those of no version."""
    files = spark.read.schema("topic STRING, key BINARY")
    found = 0
    # The second folder has the changes of a table with a change data feed.
    for folder in ("", "/_change_data"):
        try:
            rows = files.parquet(f"{settings.table_path(table)}{folder}/*.parquet")
            rows = _with_key(rows, key, topics).select("_metadata.file_path")
            found += rows.distinct().count()
        except AnalysisException:
            # There is no such file.
            continue
    return found
