"""
Checks `latest`: each key has one row, and no message of the lake is newer.

One shuffle of narrow rows. A batch of refine writes `latest` last. While one is under
way, messages behind the last offset of `latest` in their partition are left out:
refine may be about to merge them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

OF_LATEST: Final = ("latest_copies", "latest_stale")
"""The counts."""

_KEY: Final = ("source", "topic", "key_digest")


def latest_problems(
    latest: DataFrame, lake: DataFrame, *, is_merged: bool
) -> DataFrame:
    """
    Return the keys that are wrong in `latest`.

    Args:
        latest: Rows of `latest`: source, topic, key_digest, id, rank, partition,
            offset, delivered_at.
        lake: The messages of silver and late, with the same columns.
        is_merged: Whether no batch, and no rebuild, is under way.

    Returns:
        source, topic, id, and two counts, 0 or 1: latest_copies (the key has more
        than one row) and latest_stale (its row is missing, or has a lower rank than
        a message of the lake).
    """
    messages = lake.where(F.col("key_digest").isNotNull())
    if not is_merged:
        # The newest row's: a topic that was created again has lower offsets.
        last = F.max_by("offset", "delivered_at").alias("merged")
        merged = latest.groupBy("topic", "partition").agg(last)
        of_latest = messages.join(F.broadcast(merged), ["topic", "partition"])
        messages = of_latest.where(F.col("offset") <= F.col("merged"))
    rows = latest.select(*_KEY, "id", F.col("rank").alias("newest")).unionByName(
        messages.select(*_KEY, "id", F.col("rank").alias("highest")),
        allowMissingColumns=True,
    )
    is_stale = F.coalesce("newest", F.lit(-1)) < F.col("highest")
    return (
        rows.groupBy(*_KEY)
        .agg(
            F.count("newest").alias("rows"),
            F.max("newest").alias("newest"),
            F.max("highest").alias("highest"),
            F.coalesce(F.max_by("id", "newest"), F.max_by("id", "highest")).alias("id"),
        )
        .select(
            *("source", "topic", "id"),
            (F.col("rows") > 1).cast("bigint").alias("latest_copies"),
            F.coalesce(is_stale, F.lit(False))  # noqa: FBT003 - the literal itself
            .cast("bigint")
            .alias("latest_stale"),
        )
        .where("latest_copies + latest_stale > 0")
    )
