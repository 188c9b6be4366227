"""
Bronze to silver, late, quarantine and latest, by the high-water mark of each key.

A batch may be interrupted anywhere: it runs again with the same rows, and
writing them again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F

from ...exceptions import ConfigurationError
from ..payloads.decoder import check
from ..payloads.required_packages import require_packages
from . import reader, tables
from .classification import (
    BROADCAST_LIMIT,
    FRESH,
    IDENTITY,
    LOCATION,
    STALE,
    UNIDENTIFIED,
    UNKEYED,
    at,
    classify,
    not_at,
    unseen,
)
from .conflicts import retry_conflicts
from .records import check_columns, invalid, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ..pipeline_settings import PipelineSettings

NAME: Final = reader.NAME
"""Name of the query, in progress and metrics."""

BATCH_BYTES: Final = "256m"
"""Size of the files that one batch reads; in memory they are a few times larger."""

ALL_FILES: Final = 2**31 - 1
"""The highest number of files that Delta accepts."""


class KindCount(NamedTuple):
    """Number of records of one kind in a batch; of fresh ones, only the newest."""

    kind: str
    rows: int
    first: int | None
    """The lowest id."""
    last: int | None
    """The highest id."""

    @property
    def is_small(self) -> bool:
        """Whether their locations or ids fit into each task's memory."""
        return self.rows <= BROADCAST_LIMIT


def _count(classified: DataFrame) -> dict[str, KindCount]:
    """Count the records of each kind that occurs."""
    counted = classified.groupBy("kind").agg(
        F.count("*").alias("rows"),
        F.min("id").alias("first"),
        F.max("id").alias("last"),
    )
    return {row["kind"]: KindCount(**row.asDict()) for row in counted.collect()}


class BatchWriter:
    """Callback for `foreachBatch`: writes one batch after the other."""

    def __init__(
        self,
        settings: PipelineSettings,
        *,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """
        Keep the settings.

        Args:
            reached: Called with the name of each table that a batch was written to.
        """
        self._settings = settings
        self._reached = reached
        self._run = ""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch to all tables; writing it again changes nothing."""
        spark = batch.sparkSession
        self._run = self._run or reader.run_id(spark, self._settings)
        records = parse(batch).persist()
        classified = classify(records, self._read(spark, "latest"))
        # Most records are fresh and not the newest of their key; those need no
        # further decision.
        needed = (F.col("kind") != FRESH) | F.col("is_newest")
        classified = classified.where(needed).persist()
        try:
            self._write(records, classified, batch_id)
        finally:
            classified.unpersist()
            records.unpersist()

    def _write(self, records: DataFrame, classified: DataFrame, batch_id: int) -> None:
        found = _count(classified)
        rest = classified.where(F.col("kind") != FRESH)
        arrived = fresh = records
        if found.keys() - {FRESH}:
            others = sum(n.rows for kind, n in found.items() if kind != FRESH)
            arrived = fresh = not_at(records, rest, broadcast=others <= BROADCAST_LIMIT)
        if UNKEYED in found:
            unkeyed = self._unseen(classified, found[UNKEYED], "silver")
            unkeyed = at(records, unkeyed, broadcast=found[UNKEYED].is_small)
            arrived = fresh.unionByName(unkeyed)
        if UNIDENTIFIED in found or self._settings.schemas:
            places = classified.where(F.col("kind") == UNIDENTIFIED)
            is_small = UNIDENTIFIED not in found or found[UNIDENTIFIED].is_small
            unidentified = at(records, places, broadcast=is_small)
            self._append("quarantine", self._invalid(unidentified, arrived), batch_id)
        self._reached("quarantine")
        if found.keys() & {FRESH, UNKEYED}:
            self._append("silver", arrived, batch_id)
        self._reached("silver")
        if STALE in found:
            stale = classified.where(F.col("kind") == STALE)
            # Most duplicates are in the batch of their original, so this often
            # saves reading the tables.
            left = unseen(stale, fresh, broadcast=found[STALE].is_small)
            self._append_late(records, left, batch_id)
        self._reached("late")
        if FRESH in found:
            newest = classified.where("is_newest")
            self._merge(at(records, newest, broadcast=found[FRESH].is_small))
        self._reached("latest")

    def _append_late(self, records: DataFrame, stale: DataFrame, batch_id: int) -> None:
        """Append records that are out of order; drop duplicates of earlier batches."""
        counted = _count(stale).get(STALE)
        if counted is None:
            return
        # After the append to silver: it must have this batch's unkeyed records.
        late = self._unseen(stale, counted, "silver", "late")
        late = records.join(late.select(*LOCATION, "mark"), list(LOCATION))
        columns = (*tables.RECORD_COLUMNS, "mark")
        self._append("late", late.select(*columns), batch_id)

    def _unseen(
        self, classified: DataFrame, counted: KindCount, *names: str
    ) -> DataFrame:
        """Return the locations of a kind's records that are in none of the tables."""
        # A duplicate has the id of its original, so files with other ids are skipped.
        is_near = F.col("id").between(F.lit(counted.first), F.lit(counted.last))
        seen = [
            self._read(classified.sparkSession, name).where(is_near).select(*IDENTITY)
            for name in names
        ]
        return unseen(
            classified.where(F.col("kind") == counted.kind),
            reduce(lambda a, b: a.unionByName(b), seen),
            broadcast=counted.is_small,
        )

    def _invalid(self, unidentified: DataFrame, arrived: DataFrame) -> DataFrame:
        """Return records without an outbox's headers, and those with invalid values."""
        columns = ("reason", *LOCATION, "timestamp", "key", "value", "headers")
        unidentified = unidentified.withColumn(
            "reason", F.lit("no outbox-source or outbox-id header")
        )
        unparsable = self._unparsable(arrived)
        return unidentified.select(*columns).unionByName(unparsable.select(*columns))

    def _unparsable(self, arrived: DataFrame) -> DataFrame:
        schemas = self._settings.schemas
        if not (schemas and self._settings.unwrap):
            return invalid(arrived, schemas)
        from ..payloads.unwrapping import as_in_topic, unwrapped

        declared = arrived.where(F.col("topic").isin(*schemas))
        return as_in_topic(invalid(unwrapped(declared, self._settings), schemas))

    def _read(self, spark: SparkSession, table: str) -> DataFrame:
        return tables.read(spark, self._settings, table)

    def _append(self, table: str, rows: DataFrame, batch_id: int) -> None:
        """Append once: Delta skips batch numbers that the table already has."""
        write = (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", f"{self._run}-{table}")
            .option("txnVersion", batch_id)
        )
        retry_conflicts(lambda: write.save(self._settings.table_path(table)))

    def _merge(self, updates: DataFrame) -> None:
        """Raise the marks in `latest`; rows with an equal or higher id stay."""
        updates.createOrReplaceTempView("outbox_updates")
        text = f"""
            MERGE INTO {tables.name(self._settings, "latest")} AS t
            USING outbox_updates AS u
            ON t.source = u.source AND t.topic = u.topic AND t.key = u.key
            WHEN MATCHED AND u.id > t.id THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *
            """
        retry_conflicts(lambda: updates.sparkSession.sql(text))


def _limits(spark: SparkSession, settings: PipelineSettings) -> dict[str, Any]:
    """
    Return the options that limit how much of bronze one batch reads.

    The initial batches read files by age. After `maintain` has rewritten files,
    that is no longer the order of the rows. Within one batch offsets give the
    order, so in that case the first batch reads all files.
    """
    has_begun = reader.last_batch(spark, settings) is not None
    if has_begun or reader.is_as_written(spark, settings):
        return {
            "maxFilesPerTrigger": settings.batch_files,
            "maxBytesPerTrigger": BATCH_BYTES,
        }
    return {"maxFilesPerTrigger": ALL_FILES}


def _check_unwrapping(settings: PipelineSettings) -> None:
    try:
        require_packages("pyarrow", "pandas", extra="registry")
        if settings.payload_keys:
            require_packages("cryptography", extra="encryption")
    except ConfigurationError as error:
        raise ConfigurationError(f"unwrap: {error}") from error


def start_refine(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    trigger: Mapping[str, Any],
    reached: Callable[[str], None] = lambda _: None,
) -> StreamingQuery:
    """
    Start the stream from bronze to the other tables; all must exist.

    Raises:
        ConfigurationError: a schema is invalid, or an extra is not installed.
    """
    check(settings.schemas)
    check_columns(settings.schemas)
    if settings.unwrap:
        _check_unwrapping(settings)
    return (
        spark.readStream.format("delta")
        .options(**_limits(spark, settings))
        # Maintenance deletes rows of bronze only after they have been read.
        .option("skipChangeCommits", "true")
        .load(settings.table_path("bronze"))
        .writeStream.queryName(NAME)
        .foreachBatch(BatchWriter(settings, reached=reached))
        .option("checkpointLocation", settings.checkpoint(NAME))
        .trigger(**trigger)
        .start()
    )
