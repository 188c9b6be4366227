"""
Classifies records: new, duplicate, late, without a key, or not from an outbox.

The functions are pure. They pass on the location of a record (topic,
partition, offset) instead of its contents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from .records import is_from_outbox

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = ("source", "topic", "key")
"""Ids ascend within these; each outbox that feeds a topic has its own ids."""

IDENTITY: Final = ("source", "topic", "message_id")
"""Columns that identify a message; ids may repeat after some failovers."""

LOCATION: Final = ("topic", "partition", "offset")
"""Columns that locate a record in Kafka."""

BROADCAST_LIMIT: Final = 500_000
"""Records whose locations or ids fit into each task's memory: tens of megabytes."""

_MARK: Final = -1
"""Partition and offset of a mark; sorts it before all records."""

FRESH, STALE, UNKEYED, UNIDENTIFIED = "fresh", "stale", "unkeyed", "unidentified"
"""The kinds of records; values of the column `kind`."""


def classify(records: DataFrame, latest: DataFrame) -> DataFrame:
    """
    Classify each record of a batch by the high-water mark of its key.

    fresh: its id is above all earlier ids of its key. stale: its id is not, so
    it is a duplicate or late. unkeyed: it has no key and so no order.
    unidentified: it lacks an outbox's headers. The newest record of a key is
    the fresh one with the highest id.

    Args:
        records: The batch, with the columns of silver.
        latest: The newest record of each key before the batch.

    Returns:
        The columns of `KEY`, `IDENTITY` and `LOCATION`, `id`, `kind`, `mark`
        (the key's highest earlier id, or null) and `is_newest`.
    """
    columns = (*KEY, "message_id", "id", "partition", "offset")
    # The marks sort before the records of their keys. One sort serves both, and
    # it spills to disk; the hash table of a join would not.
    marks = latest.select(
        *KEY,
        "id",
        F.lit(_MARK).alias("partition"),
        F.lit(_MARK).cast("bigint").alias("offset"),
    )
    # Records without a key have no order and may be spread over all tasks.
    ordering_key = (*KEY, F.when(F.col("key").isNull(), F.col("offset")))
    before = (
        Window.partitionBy(*ordering_key)
        # Offsets order the records of a partition. Between partitions there is
        # no order, but the result must be the same each time.
        .orderBy("partition", "offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    kind = (
        F.when(~is_from_outbox(), UNIDENTIFIED)
        .when(F.col("key").isNull(), UNKEYED)
        .when(F.col("mark").isNull() | (F.col("id") > F.col("mark")), FRESH)
        .otherwise(STALE)
    )
    highest = F.max("id").over(Window.partitionBy(*ordering_key))
    is_newest = (F.col("kind") == FRESH) & (F.col("id") == F.col("highest"))
    return (
        records.select(*columns)
        .unionByName(marks, allowMissingColumns=True)
        .withColumns({"mark": F.max("id").over(before), "highest": highest})
        .where(F.col("partition") != _MARK)
        .withColumn("kind", kind)
        .withColumn("is_newest", is_newest)
        .drop("highest")
    )


def unseen(locations: DataFrame, seen: DataFrame, *, broadcast: bool) -> DataFrame:
    """
    Return each message once, without those in `seen`.

    Args:
        locations: At least the columns of `IDENTITY` and `LOCATION`.
        seen: At least the columns of `IDENTITY`.
        broadcast: Send `locations` to every task that reads `seen`, because
            they fit into its memory.
    """
    known = seen.select(*IDENTITY)
    if broadcast:
        wanted = F.broadcast(locations.select(*IDENTITY))
        known = known.join(wanted, list(IDENTITY), "left_semi")
    first = Window.partitionBy(*IDENTITY).orderBy("partition", "offset")
    return (
        locations.withColumn("nth", F.row_number().over(first))
        .where("nth = 1")
        .drop("nth")
        .join(known, list(IDENTITY), "left_anti")
    )


def at(records: DataFrame, locations: DataFrame, *, broadcast: bool) -> DataFrame:
    """Return the records at these locations."""
    return _by_location(records, locations, "left_semi", broadcast=broadcast)


def not_at(records: DataFrame, locations: DataFrame, *, broadcast: bool) -> DataFrame:
    """Return the records at all other locations."""
    return _by_location(records, locations, "left_anti", broadcast=broadcast)


def _by_location(
    records: DataFrame, locations: DataFrame, how: str, *, broadcast: bool
) -> DataFrame:
    found = locations.select(*LOCATION)
    return records.join(F.broadcast(found) if broadcast else found, list(LOCATION), how)
