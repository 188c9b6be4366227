"""
Classifies records: new, duplicate, late, without a key, or not from an outbox.

The functions are pure. They pass on the number of a row within its batch
instead of its contents. The place of a record in Kafka does not identify its
row: bronze has a place twice after a topic was read twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from .records import is_from_outbox

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY: Final = ("source", "topic", "key")
"""Ids ascend within these; each outbox that feeds a topic has its own ids."""

IDENTITY: Final = ("source", "topic", "message_id")
"""Columns that identify a message; ids may repeat after some failovers."""

PLACE: Final = ("topic", "partition", "offset", "timestamp")
"""Columns that identify a record which no outbox has sent."""

ROW: Final = "row"
"""Number of a row within its batch."""

BROADCAST_LIMIT: Final = 500_000
"""Rows whose numbers or ids fit into each task's memory: tens of megabytes."""

KEYS_LIMIT: Final = 4_000_000
"""Rows whose keys' hashes fit into each task's memory: 16 bytes each and more."""

_MARK: Final = -1
"""Partition, offset and row of a mark; sorts it before all records."""

FRESH, STALE, UNKEYED, UNIDENTIFIED = "fresh", "stale", "unkeyed", "unidentified"
"""The kinds of records; values of the column `kind`."""


def numbered(records: DataFrame) -> DataFrame:
    """Number the rows of a batch: the same numbers each time it is evaluated."""
    return records.withColumn(ROW, F.monotonically_increasing_id())


def marks_of(records: DataFrame, latest: DataFrame, *, rows: int) -> DataFrame:
    """
    Return the rows of `latest` whose key occurs in the records.

    A few others may be among them, whose keys have the same hash. For more than
    `KEYS_LIMIT` rows it returns all of them.
    """
    if rows > KEYS_LIMIT:
        return latest
    keyed = records.where(F.col("key").isNotNull())
    hashes = F.broadcast(keyed.select(_hash()))
    marks = latest.withColumn("key_hash", _hash())
    return marks.join(hashes, "key_hash", "left_semi").drop("key_hash")


def classify(records: DataFrame, marks: DataFrame) -> DataFrame:
    """
    Classify each record of a batch by the high-water mark of its key.

    fresh: its rank is above all earlier ranks of its key. stale: its rank is
    not, so it is a duplicate, late, or from another partition. unkeyed: it has
    no key and so no order. unidentified: it lacks an outbox's headers. The
    newest record of a key is the fresh one with the highest rank.

    Args:
        records: The batch, with the columns of silver, `rank` and `row`.
        marks: The newest record of each key before the batch, with `rank`.

    Returns:
        The columns of `KEY`, `IDENTITY` and `PLACE`, `id`, `rank`, `row`,
        `kind`, `mark` (the key's highest earlier rank, or null), `base` and
        `home` (rank and partition of the key's newest record before the batch,
        or null), and `is_newest`.
    """
    columns = (*KEY, "message_id", "id", "rank", *PLACE[1:], ROW)
    # The marks sort before the records of their keys. One sort serves both, and
    # it spills to disk; the hash table of a join would not.
    before = marks.select(
        *KEY,
        "rank",
        F.col("rank").alias("base"),
        F.col("partition").alias("home"),
        F.lit(_MARK).alias("partition"),
        *(F.lit(_MARK).cast("bigint").alias(name) for name in ("offset", ROW)),
    )
    # Records without a key have no order and may be spread over all tasks.
    key = (*KEY, F.when(F.col("key").isNull(), F.col(ROW)))
    earlier = (
        Window.partitionBy(*key)
        # Offsets order the records of a partition. Between partitions there is
        # no order, but the result must be the same each time.
        .orderBy("partition", "offset", ROW)
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    whole = Window.partitionBy(*key)
    kind = (
        F.when(~is_from_outbox(), UNIDENTIFIED)
        .when(F.col("key").isNull(), UNKEYED)
        .when(F.col("mark").isNull() | (F.col("rank") > F.col("mark")), FRESH)
        .otherwise(STALE)
    )
    is_newest = (F.col("kind") == FRESH) & (F.col("rank") == F.col("highest"))
    return (
        records.select(*columns)
        .unionByName(before, allowMissingColumns=True)
        .withColumns(
            {
                "mark": F.max("rank").over(earlier),
                **{
                    name: F.max(of).over(whole)
                    for name, of in (
                        ("highest", "rank"),
                        ("base", "base"),
                        ("home", "home"),
                    )
                },
            }
        )
        .where(F.col(ROW) != _MARK)
        .withColumn("kind", kind)
        .withColumn("is_newest", is_newest)
        .drop("highest")
    )


def unseen(
    rows: DataFrame,
    seen: DataFrame,
    *,
    broadcast: bool,
    by: tuple[str, ...] = IDENTITY,
) -> DataFrame:
    """
    Return the first delivery of each message, without those in `seen`.

    Args:
        rows: At least the columns in `by` and of `PLACE`, and row.
        seen: At least the columns in `by`.
        broadcast: Send `rows` to every task that reads `seen`, because they
            fit into its memory.
        by: What identifies a message.
    """
    known = seen.select(*by)
    if broadcast:
        known = known.join(F.broadcast(rows.select(*by)), list(by), "left_semi")
    # Copies in several partitions have no order but that of their times.
    first = Window.partitionBy(*by).orderBy("timestamp", "partition", "offset", ROW)
    return (
        rows.withColumn("nth", F.row_number().over(first))
        .where("nth = 1")
        .drop("nth")
        .join(known, list(by), "left_anti")
    )


def is_surely_late() -> Column:
    """Whether a stale record came behind a higher rank of its key and partition."""
    is_home = F.col("partition") == F.col("home")
    return F.coalesce(is_home & (F.col("rank") <= F.col("base")), F.lit(False))  # noqa: FBT003


def with_own_marks(
    stale: DataFrame, batch: DataFrame, earlier: DataFrame, *, broadcast: bool
) -> DataFrame:
    """
    Replace `mark` of stale records by the highest earlier rank of their partition.

    A topic that got more partitions has keys in two of them, and each partition
    has an order of its own. A record is late if its mark is at least its rank.

    Args:
        stale: Some rows of `classify()`.
        batch: All rows of the batch.
        earlier: The records of silver, with `rank`.
        broadcast: Send `stale` to every task, because it fits into its memory.
    """
    own = (*KEY, "partition")
    end, last = F.col("offset").alias("end"), F.col(ROW).alias("last")
    wanted = stale.select(*own, end, last)
    wanted = F.broadcast(wanted) if broadcast else wanted
    in_batch = (
        batch.select(*own, "offset", ROW, "rank")
        .join(wanted, list(own))
        .where(F.struct("offset", ROW) < F.struct("end", "last"))
    )
    in_silver = earlier.select(*own, "rank").join(wanted, list(own))
    marks = (
        in_batch.select("last", "rank")
        .unionByName(in_silver.select("last", "rank"))
        .groupBy(F.col("last").alias(ROW))
        .agg(F.max("rank").alias("mark"))
    )
    return stale.drop("mark").join(marks, ROW, "left")


def at(records: DataFrame, rows: DataFrame, *, broadcast: bool) -> DataFrame:
    """Return the records with these row numbers."""
    return _by_row(records, rows, "left_semi", broadcast=broadcast)


def not_at(records: DataFrame, rows: DataFrame, *, broadcast: bool) -> DataFrame:
    """Return all other records."""
    return _by_row(records, rows, "left_anti", broadcast=broadcast)


def _by_row(
    records: DataFrame, rows: DataFrame, how: str, *, broadcast: bool
) -> DataFrame:
    found = rows.select(ROW)
    return records.join(F.broadcast(found) if broadcast else found, ROW, how)


def _hash() -> Column:
    return F.xxhash64(*KEY).alias("key_hash")
