"""
Bronze to silver, late, quarantine and latest, by the mark of each key.

Second step of the pipeline; its package explains why a record is judged by
the highest id of its key, and why a batch may be cut off anywhere.
`judging.py` says what each record is; `Refinery` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F

from ..payloads.decoder import check
from . import reader, tables
from .conflicts import again
from .judging import (
    FEW,
    FOREIGN,
    FRESH,
    IDENTITY,
    PLACE,
    SUSPECT,
    UNKEYED,
    at,
    classify,
    elsewhere,
    unseen,
)
from .records import check_columns, parse, unfit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ..pipeline_settings import PipelineSettings

NAME: Final = reader.NAME
"""Of the query, in progress and metrics."""

BATCH_BYTES: Final = "256m"
"""Of files that one batch takes from bronze; in memory it is a few times as much."""

ALL_FILES: Final = 2**31 - 1
"""The most that Delta takes for a number of files."""


class Counted(NamedTuple):
    """How many records of a kind a batch has; of the fresh ones, the newest."""

    kind: str
    rows: int
    first: int | None
    """The lowest id."""
    last: int | None
    """The highest id."""

    @property
    def is_few(self) -> bool:
        """Whether each task can have all their places or ids in its memory."""
        return self.rows <= FEW


def _count(judged: DataFrame) -> dict[str, Counted]:
    """Count the kinds that there are."""
    counted = judged.groupBy("kind").agg(
        F.count("*").alias("rows"),
        F.min("id").alias("first"),
        F.max("id").alias("last"),
    )
    return {row["kind"]: Counted(**row.asDict()) for row in counted.collect()}


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
        self._run = self._run or reader.run_id(spark, self._settings)
        records = parse(batch).persist()
        judged = classify(records, self._read(spark, "latest"))
        # Most are fresh, and not the last of their keys: those just go on.
        judged = judged.where((F.col("kind") != FRESH) | F.col("is_newest")).persist()
        try:
            self._write(records, judged, batch_id)
        finally:
            judged.unpersist()
            records.unpersist()

    def _write(self, records: DataFrame, judged: DataFrame, batch_id: int) -> None:
        found = _count(judged)
        rest = judged.where(F.col("kind") != FRESH)
        arrived = fresh = records
        if found.keys() - {FRESH}:
            few = sum(n.rows for kind, n in found.items() if kind != FRESH) <= FEW
            arrived = fresh = elsewhere(records, rest, is_few=few)
        if UNKEYED in found:
            unkeyed = self._unseen(judged, found[UNKEYED], "silver")
            unkeyed = at(records, unkeyed, is_few=found[UNKEYED].is_few)
            arrived = fresh.unionByName(unkeyed)
        if FOREIGN in found or self._settings.schemas:
            foreign = judged.where(F.col("kind") == FOREIGN)
            few = FOREIGN not in found or found[FOREIGN].is_few
            unfit = self._unfit(at(records, foreign, is_few=few), arrived)
            self._append("quarantine", unfit, batch_id)
        self._reached("quarantine")
        if found.keys() & {FRESH, UNKEYED}:
            self._append("silver", arrived, batch_id)
        self._reached("silver")
        if SUSPECT in found:
            suspects = judged.where(F.col("kind") == SUSPECT)
            # A copy mostly follows its original: then no table need be asked.
            left = unseen(suspects, fresh, is_few=found[SUSPECT].is_few)
            self._append_late(records, left, batch_id)
        self._reached("late")
        if FRESH in found:
            newest = judged.where("is_newest")
            self._merge(at(records, newest, is_few=found[FRESH].is_few))
        self._reached("latest")

    def _append_late(
        self, records: DataFrame, suspects: DataFrame, batch_id: int
    ) -> None:
        """Append what came out of order; copies of earlier batches go."""
        counted = _count(suspects).get(SUSPECT)
        if counted is None:
            return
        # Read only now: silver must have this batch's records without a key.
        late = self._unseen(suspects, counted, "silver", "late")
        late = records.join(late.select(*PLACE, "mark"), list(PLACE))
        columns = (*tables.RECORD_COLUMNS, "mark")
        self._append("late", late.select(*columns), batch_id)

    def _unseen(self, judged: DataFrame, counted: Counted, *names: str) -> DataFrame:
        """The places of a kind's records that none of the tables has."""
        # A copy has the id of its original: files with other ids are not read.
        is_near = F.col("id").between(F.lit(counted.first), F.lit(counted.last))
        seen = [
            self._read(judged.sparkSession, name).where(is_near).select(*IDENTITY)
            for name in names
        ]
        return unseen(
            judged.where(F.col("kind") == counted.kind),
            reduce(lambda a, b: a.unionByName(b), seen),
            is_few=counted.is_few,
        )

    def _unfit(self, foreign: DataFrame, arrived: DataFrame) -> DataFrame:
        """What no outbox sent, and what does not fit its topic's schema."""
        columns = ("reason", *PLACE, "timestamp", "key", "value", "headers")
        foreign = foreign.withColumn(
            "reason", F.lit("no outbox-source or outbox-id header")
        )
        unparsable = unfit(arrived, self._settings.schemas)
        return foreign.select(*columns).unionByName(unparsable.select(*columns))

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


def _limits(spark: SparkSession, settings: PipelineSettings) -> dict[str, Any]:
    """
    Options that say how much of bronze one batch takes.

    A first batch reads files in the order of their age. Where `maintain` has
    rewritten them that is not the order of the rows, but inside a batch the
    offsets decide: then it takes all.
    """
    has_begun = reader.last_batch(spark, settings) is not None
    if has_begun or reader.is_as_written(spark, settings):
        return {
            "maxFilesPerTrigger": settings.batch_files,
            "maxBytesPerTrigger": BATCH_BYTES,
        }
    return {"maxFilesPerTrigger": ALL_FILES}


def start_refine(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    trigger: Mapping[str, Any],
    reached: Callable[[str], None] = lambda _: None,
) -> StreamingQuery:
    """
    Start the stream from bronze to the other tables, which must exist.

    Raises:
        ConfigurationError: a declared schema is of no use, or an extra is missing.
    """
    check(settings.schemas)
    check_columns(settings.schemas)
    return (
        spark.readStream.format("delta")
        .options(**_limits(spark, settings))
        # Retention deletes old rows of bronze; they have been read.
        .option("skipChangeCommits", "true")
        .load(settings.table_path("bronze"))
        .writeStream.queryName(NAME)
        .foreachBatch(Refinery(settings, reached=reached))
        .option("checkpointLocation", settings.checkpoint(NAME))
        .trigger(**trigger)
        .start()
    )
