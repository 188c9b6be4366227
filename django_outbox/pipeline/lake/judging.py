"""
What a record is: new, a copy, late, without a key, or nobody's.

`refine.py` asks for each batch. The functions are pure, and narrow: they pass
on where a record is, and not what is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from .records import is_from_outbox

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = ("source", "topic", "key")
"""What ids ascend for: each outbox that feeds a topic has ids of its own."""

IDENTITY: Final = ("source", "topic", "message_id")
"""What makes two records the same; ids come again after some failovers."""

PLACE: Final = ("topic", "partition", "offset")
"""Where a record is."""

FEW: Final = 500_000
"""Records of which each task can have all places or ids: tens of megabytes."""

_MARK: Final = -1
"""Partition and offset of what is no record but a mark, in front of all records."""

FRESH, SUSPECT, UNKEYED, FOREIGN = "fresh", "suspect", "unkeyed", "foreign"
"""What a record is at first sight; the column `kind`."""


def classify(records: DataFrame, latest: DataFrame) -> DataFrame:
    """
    Say what each record is, by the marks of the keys and the batch itself.

    fresh: its id is above all of its key so far. suspect: it is not, so it is
    a copy or late. unkeyed: it has no key, so nothing orders it. foreign: no
    outbox sent it. Of each key with something fresh, the one with the highest
    id is the newest.

    Args:
        records: Of the batch, with the columns of silver.
        latest: The newest record of each key so far.

    Returns:
        The columns of `KEY`, `IDENTITY` and `PLACE`, `id`, `kind`, `mark` (the
        id that the key had already, or null) and `is_newest`.
    """
    columns = (*KEY, "message_id", "id", "partition", "offset")
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


def unseen(places: DataFrame, seen: DataFrame, *, is_few: bool) -> DataFrame:
    """
    Each record once, without those that were seen.

    Args:
        places: With the columns of `IDENTITY` and `PLACE`, at least.
        seen: With the columns of `IDENTITY`, at least.
        is_few: Whether the records fit into the memory of each task: then they
            go to what was seen, and not that to them.
    """
    known = seen.select(*IDENTITY)
    if is_few:
        asked = F.broadcast(places.select(*IDENTITY))
        known = known.join(asked, list(IDENTITY), "left_semi")
    first = Window.partitionBy(*IDENTITY).orderBy("partition", "offset")
    return (
        places.withColumn("nth", F.row_number().over(first))
        .where("nth = 1")
        .drop("nth")
        .join(known, list(IDENTITY), "left_anti")
    )


def at(records: DataFrame, places: DataFrame, *, is_few: bool) -> DataFrame:
    """The records at these places."""
    return _by_place(records, places, "left_semi", is_few=is_few)


def elsewhere(records: DataFrame, places: DataFrame, *, is_few: bool) -> DataFrame:
    """The records at all other places."""
    return _by_place(records, places, "left_anti", is_few=is_few)


def _by_place(
    records: DataFrame, places: DataFrame, how: str, *, is_few: bool
) -> DataFrame:
    places = places.select(*PLACE)
    return records.join(F.broadcast(places) if is_few else places, list(PLACE), how)
