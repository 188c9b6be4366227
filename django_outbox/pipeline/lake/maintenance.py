"""
Upkeep of the tables: old rows out, small files together, dead files away.

Runs beside the pipeline: whoever commits second tries again (`conflicts.py`).
Bronze has a reader that must find what it has not read: rows are deleted only
behind it, and files that it may still open are not vacuumed (`reader.py`).
Compaction does not disturb it: it follows commits, and compacted files are no
news. Only a refine that begins anew would meet them; it then takes all at
once (`refine.py`), since their order is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from . import tables
from .conflicts import again
from .judging import KEY
from .reader import Position, find

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from ..pipeline_settings import PipelineSettings

CLUSTERED: Final = ("silver", "latest")
"""What is asked by key."""

PATIENCE: Final = timedelta(days=6)
"""
How long unread rows may wait before bronze is not vacuumed any more.

Delta keeps a replaced file for a week, and it is replaced after it came.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """What was done to one table, or would be."""

    table: str
    rows_deleted: int = 0
    """Beyond their retention."""
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    """Of the files that the table has; dead ones do not count."""
    bytes_after: int = 0
    note: str = ""
    """Why something was left undone; else empty."""

    def __str__(self) -> str:
        text = (
            f"{self.table}: {self.rows_deleted:,} rows deleted,"
            f" files {self.files_before:,} -> {self.files_after:,},"
            f" bytes {self.bytes_before:,} -> {self.bytes_after:,}"
        )
        return f"{text} ({self.note})" if self.note else text


def maintain(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    names: Sequence[str] = tuple(tables.SCHEMAS),
    cluster: bool = False,
    dry_run: bool = False,
) -> Iterator[Upkeep]:
    """
    Maintain one table after the other, and tell of each when it is done.

    Args:
        names: Of the tables.
        cluster: Sort silver and latest by source, topic and key; this
            rewrites them as a whole.
        dry_run: Count what would be deleted; change nothing.

    Raises:
        Py4JJavaError, SparkConnectGrpcException: other writers were quicker
            at every attempt; nothing is damaged.
    """
    tables.create(spark, settings)
    for table in names:
        before = _detail(spark, settings, table)
        done = _maintain(spark, settings, table, cluster=cluster, dry_run=dry_run)
        after = before if dry_run else _detail(spark, settings, table)
        yield replace(
            done,
            files_before=before["numFiles"],
            files_after=after["numFiles"],
            bytes_before=before["sizeInBytes"],
            bytes_after=after["sizeInBytes"],
        )


def _maintain(
    spark: SparkSession,
    settings: PipelineSettings,
    table: str,
    *,
    cluster: bool,
    dry_run: bool,
) -> Upkeep:
    """Delete, compact and vacuum as far as the table's reader allows."""
    name, note = tables.name(settings, table), ""
    position = None
    if table == "bronze":
        position = find(spark, settings)
        if position is None:
            return Upkeep(table=table, note="refine has not read it yet: left alone")
        since = position.waiting_since
        if since is not None and datetime.now(UTC) - since > PATIENCE:
            note = f"not vacuumed: refine has rows to read since {since:%Y-%m-%d}"
    deleted = _delete(spark, settings, table, position=position, dry_run=dry_run)
    if not dry_run:
        by = f" ZORDER BY ({', '.join(KEY)})" if cluster and table in CLUSTERED else ""
        again(lambda: spark.sql(f"OPTIMIZE {name}{by}").collect())
        if not note:
            # Never with RETAIN: the default is the shortest that is safe.
            spark.sql(f"VACUUM {name}").collect()
    return Upkeep(table=table, rows_deleted=deleted, note=note)


def _delete(
    spark: SparkSession,
    settings: PipelineSettings,
    table: str,
    *,
    position: Position | None,
    dry_run: bool,
) -> int:
    """Delete the rows beyond the table's retention; return how many those are."""
    days = retention_days(settings, table)
    if not days:
        return 0
    end = datetime.now(UTC) - timedelta(days=days)
    old = f"timestamp < TIMESTAMP '{end:%Y-%m-%d %H:%M:%S}+00:00'"
    name, rows = tables.name(settings, table), tables.read(spark, settings, table)
    if position is None:
        if dry_run:
            return rows.where(old).count()
        text = f"DELETE FROM {name} WHERE {old}"  # noqa: S608 - both are ours
        return int(again(lambda: spark.sql(text).collect())[0]["num_affected_rows"])
    reached = position.reached(spark, settings)
    if dry_run:
        rows = rows.where(old).join(reached, ["topic", "partition"])
        return rows.where("offset <= reached").count()
    reached.createOrReplaceTempView("outbox_reached")
    text = f"""
        MERGE INTO {name} AS t
        USING outbox_reached AS r
        ON t.topic = r.topic AND t.partition = r.partition
            AND t.offset <= r.reached AND {old}
        WHEN MATCHED THEN DELETE
        """
    return int(again(lambda: spark.sql(text).collect())[0]["num_deleted_rows"])


def retention_days(settings: PipelineSettings, table: str) -> int:
    """How long a table keeps a row, by Kafka's time; 0 is for ever."""
    if table == "bronze":
        return settings.bronze_days
    return 0 if table == "latest" else settings.silver_days


def _detail(spark: SparkSession, settings: PipelineSettings, table: str) -> Row:
    """Files and bytes that a table has now."""
    name = tables.name(settings, table)
    return spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]
