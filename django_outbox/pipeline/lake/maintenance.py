"""
Table maintenance: deletes old rows, compacts small files, vacuums dead files.

Runs while the pipeline runs; conflicting commits are retried. Maintenance
never deletes rows of bronze that refine has not read, and never vacuums files
that refine may still open. Compaction does not affect refine: it follows
commits, and a compaction commits no new rows. Compaction loses the order of the
rows, so a refine that starts over rebuilds the tables first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from ...exceptions import ConfigurationError
from . import tables, typed_tables
from .classification import KEY
from .conflicts import ATTEMPTS, is_conflict, retry_conflicts
from .reader import Position, find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline_settings import PipelineSettings

CLUSTERED: Final = ("silver", "latest")
"""Tables that are queried by key."""

MAX_UNREAD_AGE: Final = timedelta(days=6)
"""
Age of the oldest unread row above which bronze is not vacuumed.

VACUUM keeps a replaced file for a week, so a younger row's file is still there.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceResult:
    """What maintenance did to one table, or would do in a dry run."""

    table: str
    rows_deleted: int = 0
    """Rows older than the retention."""
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    """Size of the table's current files, without dead ones."""
    bytes_after: int = 0
    note: str = ""
    """Why a step was skipped; empty if none was."""
    is_finished: bool = True
    """False if a step always conflicted with another writer; the table is intact."""

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
    names: Sequence[str] = (),
    cluster: bool = False,
    dry_run: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Iterator[MaintenanceResult]:
    """
    Maintain one table after the other, and yield each result.

    Args:
        names: Tables to maintain; empty = all, with typed ones.
        cluster: Sort silver and latest by source, topic and key; this
            rewrites both tables.
        dry_run: Only count the rows to delete; change nothing.
        check: Called before each change of a table; must raise if another process
            may maintain them now.

    Raises:
        ConfigurationError: the lake has no table of this name.
    """
    tables.create(spark, settings)
    known = typed_tables.all_tables(spark, settings)
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"--table: the lake has no table {name!r}; it has {', '.join(known)}."
            )
    for table in names or known:
        before = tables.detail(spark, settings, table)
        check()
        done = _maintain(
            spark, settings, table, cluster=cluster, dry_run=dry_run, check=check
        )
        after = before if dry_run else tables.detail(spark, settings, table)
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
    check: Callable[[], None],
) -> MaintenanceResult:
    """Delete, compact and vacuum; of bronze only what refine has read."""
    name, note = tables.name(settings, table), ""
    position = None
    if table == "bronze":
        position = find(spark, settings)
        if position is None:
            return MaintenanceResult(
                table=table, note="skipped: refine has not read it yet"
            )
        since = position.waiting_since
        if since is not None and datetime.now(UTC) - since > MAX_UNREAD_AGE:
            note = f"not vacuumed: refine has unread rows since {since:%Y-%m-%d}"
    deleted = 0
    try:
        deleted = _delete(spark, settings, table, position=position, dry_run=dry_run)
        if not dry_run:
            is_clustered = cluster and table in CLUSTERED
            by = f" ZORDER BY ({', '.join(KEY)})" if is_clustered else ""
            check()
            retry_conflicts(lambda: spark.sql(f"OPTIMIZE {name}{by}").collect())
            check()
            if not note:
                # Without RETAIN: the default is the shortest safe retention.
                spark.sql(f"VACUUM {name}").collect()
    except Exception as error:
        # The class depends on where Spark runs.
        if not is_conflict(error):
            raise
        note = f"not finished: {ATTEMPTS} conflicts with another writer"
        return MaintenanceResult(
            table=table, rows_deleted=deleted, note=note, is_finished=False
        )
    return MaintenanceResult(table=table, rows_deleted=deleted, note=note)


def _delete(
    spark: SparkSession,
    settings: PipelineSettings,
    table: str,
    *,
    position: Position | None,
    dry_run: bool,
) -> int:
    """Delete rows older than the table's retention; return how many there are."""
    days = retention_days(settings, table)
    if not days:
        return 0
    end = datetime.now(UTC) - timedelta(days=days)
    old = f"timestamp < TIMESTAMP '{end:%Y-%m-%d %H:%M:%S}+00:00'"
    name, rows = tables.name(settings, table), tables.read(spark, settings, table)
    if position is None:
        if dry_run:
            return rows.where(old).count()
        text = f"DELETE FROM {name} WHERE {old}"  # noqa: S608 - no user input
        deleted = retry_conflicts(lambda: spark.sql(text).collect())
        return int(deleted[0]["num_affected_rows"])
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
    deleted = retry_conflicts(lambda: spark.sql(text).collect())
    return int(deleted[0]["num_deleted_rows"])


def retention_days(settings: PipelineSettings, table: str) -> int:
    """Return the days that a table keeps a row, by Kafka's time; 0 = no limit."""
    if table == "bronze":
        return settings.bronze_days
    return 0 if table == "latest" else settings.silver_days
