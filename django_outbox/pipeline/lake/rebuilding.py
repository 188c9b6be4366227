"""
Makes silver, late, latest and quarantine again from bronze, in slices.

A slice has all rows of some keys, so it is one batch on empty tables, and no
slice depends on another. The tables are made beside the old ones, which serve
until each is replaced in one commit. When the process dies, the next rebuild
starts over. If that leaves new tables beside old ones, refine rebuilds them first.

Refine continues behind the version of bronze that was read; a refine without a
checkpoint begins there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from ...exceptions import BronzeIncomplete
from . import tables, typed_tables
from .batch_writer import BatchCounts, BatchId, BatchWriter
from .classification import IDENTITY
from .conflicts import retry_conflicts
from .records import header, parse
from .vacuum import vacuum_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

REBUILT: Final = ("quarantine", "silver", "late", "latest")
"""The tables that are made from bronze, in the order of their replacement; typed
tables come before them."""

_SLICES: Final = "slices"
"""A copy of bronze, partitioned by slice."""

SLICE_BYTES: Final = 256 * 2**20
"""Size of the rows of a slice in bronze's files; in memory they are larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A slice that has been written."""

    number: int
    """From 1."""
    slices: int
    """How many there are."""
    counts: BatchCounts
    seconds: float

    def __str__(self) -> str:
        counts = self.counts
        return (
            f"slice {self.number} of {self.slices}: {counts.rows:,} rows in"
            f" {self.seconds:.1f} s, {counts.copies:,} copies, {counts.late:,} late,"
            f" {counts.quarantined:,} quarantined"
        )


def count_slices(spark: SparkSession, settings: PipelineSettings) -> int:
    """Return the number of slices of bronze, at least 1."""
    size = int(tables.detail(spark, settings, "bronze")["sizeInBytes"])
    return max(1, math.ceil(size / SLICE_BYTES))


def rebuild(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    check: Callable[[], None] = lambda: None,
) -> Iterator[Slice]:
    """
    Make the tables again from bronze; yield each slice, then replace the tables.

    Neither ingest nor refine may run meanwhile.

    Args:
        check: Called before each write; must raise if this process may no longer be
            the only writer.

    Raises:
        BronzeIncomplete: the old tables have messages that bronze no longer has;
            nothing was changed.
        ConfigurationError: a schema is invalid, or an extra is not installed.
    """
    typed_tables.check_names(settings)
    beside = _beside(settings)
    tables.create(spark, settings)
    version = tables.newest_version(spark, settings, "bronze")
    slices = count_slices(spark, settings)
    rows = tables.read(spark, settings, "bronze", version=version)
    _check_bronze(spark, settings, rows)
    check()
    discard(spark, settings)
    tables.create(spark, beside)
    # Of keys whose last message was deleted everywhere else, with its age.
    kept = tables.read(spark, settings, "latest").join(
        parse(rows).select(*IDENTITY), list(IDENTITY), "left_anti"
    )
    kept.write.format("delta").mode("append").save(beside.table_path("latest"))
    if slices > 1:
        rows = _split(rows, beside.table_path(_SLICES), slices)
    writer, run = BatchWriter(beside), f"rebuild-{uuid4()}"
    for number in range(slices):
        check()
        began = time.monotonic()
        batch = rows if slices == 1 else rows.where(F.col("slice") == number)
        counts = writer.write(batch, BatchId(run, number))
        yield Slice(
            number=number + 1,
            slices=slices,
            counts=counts,
            seconds=time.monotonic() - began,
        )
    typed = {*typed_tables.find(spark, beside)} & {*typed_tables.names(settings)}
    check()
    _note(spark, settings, {tables.REBUILDING: "yes"})
    for table in (*sorted(typed), *REBUILT):
        check()
        _overwrite(tables.read(spark, beside, table), settings, table)
    done = {tables.REBUILT_FROM: str(version), tables.REBUILDING: "no"}
    _note(spark, settings, done)
    check()
    discard(spark, settings)


def discard(spark: SparkSession, settings: PipelineSettings) -> None:
    """Delete what an interrupted rebuild has left; nothing may read or write it."""
    beside = _beside(settings)
    for table in typed_tables.find(spark, beside):
        # The next rebuild may give the payload other types.
        rows = tables.read(spark, beside, table).limit(0)
        _overwrite(rows.drop("payload"), beside, table)
        vacuum_now(spark, tables.name(beside, table))
    for table in (*REBUILT, _SLICES):
        name = tables.name(beside, table)
        try:
            spark.sql(f"DELETE FROM {name}")  # noqa: S608 - no user input
        except AnalysisException:
            # There is no such table.
            continue
        vacuum_now(spark, name)


def _note(
    spark: SparkSession, settings: PipelineSettings, properties: Mapping[str, str]
) -> None:
    """Set properties of silver."""
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    silver = tables.name(settings, "silver")
    retry_conflicts(
        lambda: spark.sql(f"ALTER TABLE {silver} SET TBLPROPERTIES ({listed})")
    )


def _beside(settings: PipelineSettings) -> PipelineSettings:
    return replace(settings, lake=settings.table_path("_rebuild"))


def _split(bronze: DataFrame, path: str, slices: int) -> DataFrame:
    """Write a copy of bronze with a partition for each slice, and return it."""
    key = F.coalesce("key", header("outbox-message-id").cast("binary"))
    number = F.pmod(F.xxhash64("topic", key), F.lit(slices)).cast("int")
    numbered = bronze.withColumn("slice", number)
    # A table from the start, so that `discard` finds what an interrupted write leaves.
    empty = numbered.limit(0).write.format("delta").partitionBy("slice")
    empty.mode("overwrite").option("overwriteSchema", "true").save(path)
    divided = numbered.repartition(slices, "slice").write.format("delta")
    divided.mode("append").save(path)
    return bronze.sparkSession.read.format("delta").load(path)


def _check_bronze(
    spark: SparkSession, settings: PipelineSettings, bronze: DataFrame
) -> None:
    """Refuse to rebuild tables that have more messages than bronze."""
    silver, late = (tables.read(spark, settings, t) for t in ("silver", "late"))
    kept = silver.select(*IDENTITY).unionByName(late.select(*IDENTITY))
    if missing := kept.subtract(parse(bronze).select(*IDENTITY)).count():
        raise BronzeIncomplete(
            f"bronze lacks {missing:,} messages that are in silver or late: `maintain`"
            " has deleted their rows (bronze_days). Nothing was changed. To lose these"
            " messages, delete them from silver and late first."
        )


def _overwrite(rows: DataFrame, settings: PipelineSettings, table: str) -> None:
    write = rows.write.format("delta").mode("overwrite")
    # The schema of a typed table may have changed.
    write = write.option("overwriteSchema", "true")
    if table not in tables.SCHEMAS:
        # It may not be there yet. The log would keep values of payloads.
        write = write.option(tables.INDEXED, tables.RECORD_INDEXED)
    retry_conflicts(lambda: write.save(settings.table_path(table)))
