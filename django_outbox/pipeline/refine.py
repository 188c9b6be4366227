"""
Bronze to silver, late, quarantine and latest, by the mark of each key.

Second step of the pipeline; its package explains why a record is judged by
the highest id of its key, and why a batch may be cut off anywhere. The
functions on DataFrames are pure; `Refinery` writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from . import reader, tables
from .conflicts import again
from .records import is_from_outbox, is_unparsable, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from .config import PipelineSettings

NAME: Final = reader.NAME
"""Of the query, in progress and metrics."""

ALL_FILES: Final = 2**31 - 1
"""The most that Delta takes for a number of files."""

KEY: Final = ("source", "topic", "key")
"""What ids ascend for: each outbox that feeds a topic has ids of its own."""

IDENTITY: Final = ("source", "topic", "message_id")
"""What makes two records the same; ids come again after some failovers."""

FEW: Final = 50_000
"""Records of which each task can have all ids: a few megabytes."""

_MARK: Final = -1
"""Partition and offset of what is no record but a mark, in front of all records."""

FRESH, SUSPECT, UNKEYED, FOREIGN = "fresh", "suspect", "unkeyed", "foreign"
"""What a record is at first sight; the column `kind`."""


def classify(records: DataFrame, latest: DataFrame) -> DataFrame:
    """
    Add to each record its `kind`, the `mark` that decided it, and `is_newest`.

    fresh: its id is above all of its key so far. suspect: it is not, so it is
    a copy or late. unkeyed: it has no key, so nothing orders it. foreign: no
    outbox sent it. Of each key with something fresh, the one with the highest
    id is the newest.
    """
    # The marks go in front of the records of their keys: one sort does for
    # both, and what does not fit into memory goes to disk, as a join's table
    # would not.
    marks = latest.select(
        *KEY,
        "id",
        F.lit(_MARK).alias("partition"),
        F.lit(_MARK).cast("bigint").alias("offset"),
    )
    # What has no key is no key's, and need not be in one task.
    lane = (*KEY, F.when(F.col("key").isNull(), F.col("offset")))
    before = (
        Window.partitionBy(*lane)
        # Within a partition the offset is the order; between two of them
        # there is none, but the batch must come out the same each time.
        .orderBy("partition", "offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    kind = (
        F.when(~is_from_outbox(), FOREIGN)
        .when(F.col("key").isNull(), UNKEYED)
        .when(F.col("mark").isNull() | (F.col("id") > F.col("mark")), FRESH)
        .otherwise(SUSPECT)
    )
    highest = F.max("id").over(Window.partitionBy(*lane))
    return (
        records.unionByName(marks, allowMissingColumns=True)
        .withColumns({"mark": F.max("id").over(before), "highest": highest})
        .where(F.col("partition") != _MARK)
        .withColumn("kind", kind)
        .withColumn(
            "is_newest", (F.col("kind") == FRESH) & (F.col("id") == F.col("highest"))
        )
        .drop("highest")
    )


def unseen(records: DataFrame, *seen: DataFrame, is_few: bool = False) -> DataFrame:
    """
    Each record once, without those that one of the tables has.

    Args:
        is_few: Whether the records fit into the memory of each task: then they
            go to the tables, and not the tables to them.
    """
    first = Window.partitionBy(*IDENTITY).orderBy("partition", "offset")
    records = (
        records.withColumn("nth", F.row_number().over(first))
        .where("nth = 1")
        .drop("nth")
    )
    for table in seen:
        known = table.select(*IDENTITY)
        if is_few:
            asked = F.broadcast(records.select(*IDENTITY))
            known = known.join(asked, list(IDENTITY), "left_semi")
        records = records.join(known, list(IDENTITY), "left_anti")
    return records


class Refinery:
    """Writes one batch after the other; what `foreachBatch` calls."""

    def __init__(
        self,
        settings: PipelineSettings,
        *,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """
        Keep the settings.

        Args:
            reached: Hears the name of each table when the batch is in it.
        """
        self._settings = settings
        self._reached = reached
        self._run = ""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch to all tables; writing it again changes nothing."""
        spark = batch.sparkSession
        self._run = self._run or _run_id(spark, self._settings)
        judged = classify(parse(batch), self._read(spark, "latest")).persist()
        try:
            self._write(judged, batch_id)
        finally:
            judged.unpersist()

    def _write(self, judged: DataFrame, batch_id: int) -> None:
        counted = judged.groupBy("kind").agg(
            F.count("*").alias("rows"),
            F.min("id").alias("first"),
            F.max("id").alias("last"),
        )
        found = {row["kind"]: row for row in counted.collect()}
        fresh = judged.where(F.col("kind") == FRESH).select(*tables.RECORD_COLUMNS)
        arrived = fresh
        if UNKEYED in found:
            unkeyed = self._unseen(judged, found[UNKEYED], "silver")
            arrived = fresh.unionByName(unkeyed.select(*tables.RECORD_COLUMNS))
        if FOREIGN in found or self._settings.schemas:
            self._append("quarantine", self._unfit(judged, arrived), batch_id)
        self._reached("quarantine")
        if found.keys() & {FRESH, UNKEYED}:
            self._append("silver", arrived, batch_id)
        self._reached("silver")
        if SUSPECT in found:
            # Read only now: a copy may be of a record in this very batch.
            late = self._unseen(judged, found[SUSPECT], "silver", "late")
            self._append("late", late.select(*tables.RECORD_COLUMNS, "mark"), batch_id)
        self._reached("late")
        if FRESH in found:
            self._merge(judged.where("is_newest").select(*tables.RECORD_COLUMNS))
        self._reached("latest")

    def _unseen(self, judged: DataFrame, counted: Row, *seen: str) -> DataFrame:
        """The records of a kind that none of the tables has."""
        # A copy has the id of its original: files with other ids are not read.
        is_near = F.col("id").between(counted["first"], counted["last"])
        return unseen(
            judged.where(F.col("kind") == counted["kind"]),
            *(self._read(judged.sparkSession, name).where(is_near) for name in seen),
            is_few=counted["rows"] <= FEW,
        )

    def _unfit(self, judged: DataFrame, arrived: DataFrame) -> DataFrame:
        """What no outbox sent, and what does not fit its topic's schema."""
        columns = ("reason", "topic", "partition", "offset", "timestamp")
        content = ("key", "value", "headers")
        foreign = judged.where(F.col("kind") == FOREIGN).withColumn(
            "reason", F.lit("no outbox-source or outbox-id header")
        )
        unparsable = arrived.where(is_unparsable(self._settings.schemas)).withColumn(
            "reason", F.lit("the value does not fit the topic's schema")
        )
        return foreign.select(*columns, *content).unionByName(
            unparsable.select(*columns, *content)
        )

    def _read(self, spark: SparkSession, table: str) -> DataFrame:
        return tables.read(spark, self._settings, table)

    def _append(self, table: str, rows: DataFrame, batch_id: int) -> None:
        """Append once: Delta skips a batch number that the table has seen."""
        write = (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", f"{self._run}-{table}")
            .option("txnVersion", batch_id)
        )
        again(lambda: write.save(self._settings.table_path(table)))

    def _merge(self, updates: DataFrame) -> None:
        """Raise marks; without effect on those that are as high already."""
        updates.createOrReplaceTempView("outbox_updates")
        text = f"""
            MERGE INTO {tables.name(self._settings, "latest")} AS t
            USING outbox_updates AS u
            ON t.source = u.source AND t.topic = u.topic AND t.key = u.key
            WHEN MATCHED AND u.id > t.id THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *
            """
        again(lambda: updates.sparkSession.sql(text))


def _run_id(spark: SparkSession, settings: PipelineSettings) -> str:
    """
    The id that Spark gave to the checkpoint.

    A new checkpoint counts its batches from 0 again; under the old id their
    appends would be skipped.
    """
    lines = spark.read.text(f"{settings.checkpoint(NAME)}/metadata").collect()
    return str(json.loads(lines[0]["value"])["id"])


def _batch_files(spark: SparkSession, settings: PipelineSettings) -> int:
    """
    The most files of one batch.

    A first batch reads files in the order of their age. Where `maintain` has
    rewritten them that is not the order of the rows, but inside a batch the
    offsets decide: then it takes all.
    """
    has_begun = reader.last_batch(spark, settings) is not None
    if has_begun or reader.is_as_written(spark, settings):
        return settings.batch_files
    return ALL_FILES


def start_refine(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    trigger: Mapping[str, Any],
    reached: Callable[[str], None] = lambda _: None,
) -> StreamingQuery:
    """Start the stream from bronze to the other tables, which must exist."""
    return (
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", _batch_files(spark, settings))
        # Retention deletes old rows of bronze; they have been read.
        .option("skipChangeCommits", "true")
        .load(settings.table_path("bronze"))
        .writeStream.queryName(NAME)
        .foreachBatch(Refinery(settings, reached=reached))
        .option("checkpointLocation", settings.checkpoint(NAME))
        .trigger(**trigger)
        .start()
    )
