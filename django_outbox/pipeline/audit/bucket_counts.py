"""
The cheap audit: compares message counts of database and lake per time bucket.

The database counts its archive itself, the lake is counted from three narrow
columns, and Kafka is not read at all. A sum of digests of the message ids
accompanies each count, so that a missing message and an extra one do not
cancel out. The full audit explains a difference.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ..lake import tables
from ..lake.records import in_range, is_promised
from . import jdbc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from ..pipeline_settings import PipelineSettings

EQUAL, OPEN, DIFFERENT = "equal", "open", "different"
"""States of a bucket; `open` while its messages may still be in transit."""

_BUCKET: Final = ("topic", "bucket")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The buckets to compare, in seconds."""

    since: int
    """Start of the first bucket, in seconds since 1970."""
    width: int
    """Width of a bucket."""
    settle: int
    """Time that a message may take from the archive to the lake."""


def count(spark: SparkSession, settings: PipelineSettings, span: Span) -> list[Row]:
    """
    Count both sides, the database first, so that the lake can only have more.

    Returns:
        A row for each topic and bucket, in their order: topic, bucket, in_database,
        pending, in_lake, state.

    Raises:
        ConfigurationError: the database rejected the statement.
        DatabaseUnavailable: a database cannot be reached; call again later.
    """
    of_topics = jdbc.is_of_topics(settings)
    over = time.time() - span.settle - span.width
    with jdbc.explained_outbox(settings):
        promised = jdbc.counts(spark, settings, **asdict(span)).where(of_topics)
    promised.persist()
    try:
        with jdbc.explained_outbox(settings):
            promised.count()
        lake = _count_lake(spark, settings, span)
        judged = judge(promised, lake.withColumn("is_over", F.col("bucket") <= over))
        return judged.orderBy(*_BUCKET).collect()
    finally:
        # Spark keeps it for as long as the session lasts.
        promised.unpersist()


def _count_lake(
    spark: SparkSession, settings: PipelineSettings, span: Span
) -> DataFrame:
    sources = [*settings.outboxes(), *filter(None, [jdbc.former_source(settings)])]
    of_topics = jdbc.is_of_topics(settings)
    messages = [
        tables.read(spark, settings, table)
        .where(F.col("source").isin(*sources) & of_topics)
        .where(F.col("created_at") >= F.timestamp_seconds(F.lit(span.since)))
        .where(in_range(F.col("created_at")).isNotNull())
        .where(is_promised())
        .select("topic", "created_at", "message_id")
        for table in ("silver", "late")
    ]
    counted = messages[0].unionByName(messages[1]).groupBy(*_bucket(span))
    return counted.agg(
        F.count("*").alias("in_lake"), F.sum(_digest()).alias("lake_digest")
    )


def judge(promised: DataFrame, lake: DataFrame) -> DataFrame:
    """
    Compare the counts of both sides.

    Args:
        promised: topic, bucket (seconds since 1970), in_database, pending,
            database_digest, is_settled, archive_began.
        lake: topic, bucket, in_lake, lake_digest, is_over (whether the bucket
            had settled before the database was queried; decides for buckets
            that the database does not have).

    Returns:
        topic, bucket, in_database, pending, in_lake and `state`, without buckets
        that are older than the archive, or than its first message of their topic.
        Of a topic with nothing in the archive there are none.
    """
    archived = F.min(F.when(F.col("in_database") > 0, F.col("bucket")))
    # A message that had waited for long comes into the archive with an old time.
    in_archive = F.when(
        archived.isNotNull(), F.greatest(archived, F.max("archive_began"))
    )
    began = promised.groupBy("topic").agg(in_archive.alias("began"))
    is_equal = F.col("database_digest").eqNullSafe(F.col("lake_digest")) & (
        F.col("in_database") == F.col("in_lake")
    )
    is_settled = F.coalesce("is_settled", "is_over")
    state = F.when(is_equal, EQUAL).when(is_settled, DIFFERENT).otherwise(OPEN)
    return (
        promised.join(lake, list(_BUCKET), "full")
        .join(began, "topic")
        .where(F.col("bucket") >= F.col("began"))
        .fillna(0, ["in_database", "pending", "in_lake"])
        .select(*_BUCKET, "in_database", "pending", "in_lake", state.alias("state"))
    )


def _bucket(span: Span) -> list[str | Column]:
    start = F.floor(F.unix_seconds("created_at") / span.width) * span.width
    return ["topic", start.alias("bucket")]


def _digest() -> Column:
    """Digest of a message id; the database computes the same number."""
    return F.conv(F.substring(F.md5("message_id"), 1, 8), 16, 10).cast("bigint")
