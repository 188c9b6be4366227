"""
Writes one batch of bronze to quarantine, late, typed tables, silver and latest.

A batch may be interrupted anywhere: it is written again with the same rows, and
that changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from ...exceptions import ConfigurationError
from ...wording import first_line
from . import reader, tables, typed_tables
from .classification import (
    BROADCAST_LIMIT,
    FRESH,
    IDENTITY,
    PLACE,
    ROW,
    STALE,
    UNIDENTIFIED,
    UNKEYED,
    at,
    classify,
    is_surely_late,
    marks_of,
    not_at,
    numbered,
    unseen,
    with_own_marks,
)
from .conflicts import retry_conflicts
from .epochs import RANKS, rank, ranked
from .records import has_bad_creation_time, invalid, parse
from .restored_checkpoint import note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

NO_OUTBOX: Final = "no outbox-source or outbox-id header"
BAD_CREATION_TIME: Final = "the header outbox-created-at is not a creation time"
"""Reasons in `quarantine`."""

OTHER_TYPES: Final = "DELTA_FAILED_TO_MERGE_FIELDS"
"""Delta's error for a column that has another type in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """Records of a batch, and those that are not new messages in order."""

    rows: int
    """All records."""
    copies: int
    """Duplicates, which are in no table but bronze."""
    late: int
    """Appended to `late`."""
    quarantined: int
    """Appended to `quarantine`."""


class BatchId(NamedTuple):
    """By this, Delta skips an append of a batch that a table already has."""

    run: str
    """Whose batch it is."""
    number: int
    """Of the batch in its run."""


class KindCount(NamedTuple):
    """Number of records of one kind in a batch; of fresh ones, only the newest."""

    kind: str
    rows: int
    known: int
    """Rows whose key is in `latest`."""
    first: int | None
    """The lowest id."""
    last: int | None
    """The highest id."""


def _count(classified: DataFrame) -> dict[str, KindCount]:
    """Count the records of each kind that occurs."""
    counted = classified.groupBy("kind").agg(
        F.count("*").alias("rows"),
        F.count("base").alias("known"),
        F.min("id").alias("first"),
        F.max("id").alias("last"),
    )
    return {row["kind"]: KindCount(**row.asDict()) for row in counted.collect()}


def _is_small(found: Mapping[str, KindCount], *kinds: str) -> bool:
    """Whether the rows of these kinds fit into each task's memory."""
    return sum(found[k].rows for k in kinds if k in found) <= BROADCAST_LIMIT


class Resolved(NamedTuple):
    """Stale and unkeyed records of a batch, without the duplicates."""

    arrived: DataFrame
    """Rows that belong in silver."""
    late: DataFrame
    """Rows that belong in `late`."""
    arrived_rows: int
    late_rows: int


class BatchWriter:
    """Callback for `foreachBatch`: writes one batch after the other."""

    def __init__(
        self,
        settings: PipelineSettings,
        *,
        reached: Callable[[str], None] = lambda _: None,
        counted: Callable[[int, BatchCounts], None] = lambda *_: None,
    ) -> None:
        """
        Keep the settings.

        Args:
            reached: Called with the name of each table that a batch was written to.
            counted: Called with the number and the counts of each written batch.
        """
        self._settings = settings
        self._reached = reached
        self._counted = counted
        self._run = ""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch to all tables; writing it again changes nothing."""
        spark = batch.sparkSession
        self._run = self._run or reader.run_id(spark, self._settings)
        counts = self.write(batch, BatchId(self._run, batch_id))
        self._counted(batch_id, counts)

    def write(self, batch: DataFrame, batch_id: BatchId) -> BatchCounts:
        """Write rows of bronze to all tables."""
        records = numbered(ranked(parse(batch), self._settings)).persist()
        rows, undated = records.select(
            F.count("*"), F.count_if(F.col("created_at").isNull())
        ).collect()[0]
        latest = ranked(self._read(batch.sparkSession, "latest"), self._settings)
        classified = classify(records, marks_of(records, latest, rows=rows))
        # Most records are fresh and not the newest of their key; those need no
        # further decision.
        needed = (F.col("kind") != FRESH) | F.col("is_newest")
        classified = classified.where(needed).persist()
        try:
            return self._write(
                records, classified, batch_id, rows=rows, is_dated=not undated
            )
        finally:
            classified.unpersist()
            records.unpersist()

    def _write(
        self,
        records: DataFrame,
        classified: DataFrame,
        batch_id: BatchId,
        *,
        rows: int,
        is_dated: bool,
    ) -> BatchCounts:
        found = _count(classified)
        arrived = fresh = records
        if others := found.keys() - {FRESH}:
            rest = classified.where(F.col("kind") != FRESH)
            fresh = not_at(records, rest, broadcast=_is_small(found, *others))
            arrived = fresh
        resolved = self._resolve(classified, records, fresh, found)
        if resolved and resolved.arrived_rows:
            is_small = resolved.arrived_rows <= BROADCAST_LIMIT
            more = at(records, resolved.arrived, broadcast=is_small)
            arrived = fresh.unionByName(more)
        undated = None if is_dated else arrived.where(has_bad_creation_time())
        quarantined = self._quarantine(
            records, classified, arrived, found, batch_id, undated=undated
        )
        self._reached("quarantine")
        if resolved and resolved.late_rows:
            mark = (F.col("mark") % RANKS).alias("mark")
            marks = resolved.late.select(ROW, mark)
            late = records.join(marks, ROW).select(*tables.RECORD_COLUMNS, "mark")
            # Before silver, whose last offset says how much of bronze was refined.
            self._append("late", late, batch_id)
        self._reached("late")
        if FRESH in found or (resolved and resolved.arrived_rows):
            # Before silver, by which a repeated batch drops what has arrived.
            self._append_typed(arrived, batch_id)
            self._reached("typed")
            self._append("silver", arrived.select(*tables.RECORD_COLUMNS), batch_id)
        self._reached("silver")
        if FRESH in found:
            newest = classified.where("is_newest")
            newest = at(records, newest, broadcast=_is_small(found, FRESH))
            self._raise_marks(newest, batch_id, is_known=found[FRESH].known > 0)
        self._reached("latest")
        doubtful = sum(found[k].rows for k in (STALE, UNKEYED) if k in found)
        kept = resolved.arrived_rows + resolved.late_rows if resolved else 0
        return BatchCounts(
            rows=rows,
            copies=doubtful - kept,
            late=resolved.late_rows if resolved else 0,
            quarantined=quarantined,
        )

    def _resolve(
        self,
        classified: DataFrame,
        records: DataFrame,
        fresh: DataFrame,
        found: Mapping[str, KindCount],
    ) -> Resolved | None:
        """Drop duplicates, and tell late messages from those of other partitions."""
        if not found.keys() & {STALE, UNKEYED}:
            return None
        doubtful = classified.where(F.col("kind").isin(STALE, UNKEYED))
        is_small = _is_small(found, STALE, UNKEYED)
        # Most duplicates are in the batch of their original, so this often saves
        # reading the tables.
        left = unseen(doubtful, fresh, broadcast=is_small).localCheckpoint()
        counted = _count(left)
        if not counted:
            return None
        left = unseen(
            left,
            self._seen(classified.sparkSession, counted),
            broadcast=_is_small(counted, *counted),
        ).localCheckpoint()
        is_late = F.coalesce(F.col("mark") >= F.col("rank"), F.lit(False))  # noqa: FBT003
        is_doubtful = (F.col("kind") == STALE) & ~is_surely_late()
        sums = [F.count("*"), *map(F.count_if, (is_late, is_doubtful))]
        rows, late_rows, doubtful_rows = left.select(*sums).collect()[0]
        if doubtful_rows:
            # Of a key that has moved to another partition, which has a mark of its own.
            silver = ranked(self._read(left.sparkSession, "silver"), self._settings)
            marked = with_own_marks(
                left.where(is_doubtful),
                records,
                silver,
                broadcast=doubtful_rows <= BROADCAST_LIMIT,
            )
            left = left.where(~is_doubtful).unionByName(marked).localCheckpoint()
            late_rows = left.where(is_late).count()
        return Resolved(
            left.where(~is_late), left.where(is_late), rows - late_rows, late_rows
        )

    def _seen(self, spark: SparkSession, counted: Mapping[str, KindCount]) -> DataFrame:
        """Return the messages of silver and late with ids in the range of these."""
        # A duplicate has the id of its original, so files with other ids are skipped.
        first = min(kind.first for kind in counted.values() if kind.first is not None)
        last = max(kind.last for kind in counted.values() if kind.last is not None)
        is_near = F.col("id").between(F.lit(first), F.lit(last))
        silver, late = (
            self._read(spark, name).where(is_near).select(*IDENTITY)
            for name in ("silver", "late")
        )
        return silver.unionByName(late)

    def _quarantine(
        self,
        records: DataFrame,
        classified: DataFrame,
        arrived: DataFrame,
        found: Mapping[str, KindCount],
        batch_id: BatchId,
        *,
        undated: DataFrame | None,
    ) -> int:
        """Append what no outbox has sent, and invalid values; return their number."""
        parts = []
        if UNIDENTIFIED in found:
            is_small = _is_small(found, UNIDENTIFIED)
            first = unseen(
                classified.where(F.col("kind") == UNIDENTIFIED),
                self._read(classified.sparkSession, "quarantine"),
                broadcast=is_small,
                by=PLACE,
            )
            unidentified = at(records, first, broadcast=is_small)
            parts.append(unidentified.withColumn("reason", F.lit(NO_OUTBOX)))
        if undated is not None:
            parts.append(undated.withColumn("reason", F.lit(BAD_CREATION_TIME)))
        if self._settings.schemas:
            parts.append(self._unparsable(arrived))
        if not parts:
            return 0
        columns = ("reason", *PLACE, "key", "value", "headers")
        quarantined = reduce(
            lambda above, below: above.unionByName(below),
            [part.select(*columns) for part in parts],
        ).persist()
        try:
            if rows := quarantined.count():
                self._append("quarantine", quarantined, batch_id)
            return rows
        finally:
            quarantined.unpersist()

    def _unparsable(self, arrived: DataFrame) -> DataFrame:
        schemas = self._settings.schemas
        if not self._settings.unwrap:
            return invalid(arrived, schemas)
        from ..payloads.unwrapping import as_in_topic, unwrapped

        declared = arrived.where(F.col("topic").isin(*schemas))
        return as_in_topic(invalid(unwrapped(declared, self._settings), schemas))

    def _read(self, spark: SparkSession, table: str) -> DataFrame:
        return tables.read(spark, self._settings, table)

    def _append(self, table: str, rows: DataFrame, batch_id: BatchId) -> None:
        """Append once: Delta skips batch numbers that the table already has."""
        write = (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", f"{batch_id.run}-{table}")
            .option("txnVersion", batch_id.number)
            .option("userMetadata", note(batch_id.run, batch_id.number))
        )
        if table not in tables.SCHEMAS:
            # A typed table is made by its first rows, and may get further columns.
            write = write.option("mergeSchema", "true").option(
                tables.INDEXED, tables.RECORD_INDEXED
            )
        retry_conflicts(lambda: write.save(self._settings.table_path(table)))

    def _append_typed(self, arrived: DataFrame, batch_id: BatchId) -> None:
        if not self._settings.typed_tables:
            return
        for table, rows in typed_tables.tables_of(arrived, self._settings):
            try:
                self._append(table, rows, batch_id)
            except AnalysisException as error:
                reason = first_line(error)
                if OTHER_TYPES not in reason:
                    raise
                raise ConfigurationError(
                    f"schemas: {table} has columns of other types. Run `rebuild` with"
                    f" the new schema, or take the old one. {reason}"
                ) from error

    def _raise_marks(
        self, updates: DataFrame, batch_id: BatchId, *, is_known: bool
    ) -> None:
        """Raise the marks in `latest`; rows with an equal or higher rank stay."""
        if not is_known:
            # An append is several times cheaper.
            self._append("latest", updates.select(*tables.RECORD_COLUMNS), batch_id)
            return
        # MERGE evaluates its source several times, together with its plan.
        updates = updates.localCheckpoint()
        updates.createOrReplaceTempView("outbox_updates")
        text = f"""
            MERGE INTO {tables.name(self._settings, "latest")} AS t
            USING outbox_updates AS u
            ON t.source = u.source AND t.topic = u.topic AND t.key = u.key
            WHEN MATCHED AND u.rank > {rank(self._settings, "t")} THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *
            """
        retry_conflicts(lambda: updates.sparkSession.sql(text))
