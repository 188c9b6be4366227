"""
Compares database, topics and lake: which messages are lost, extra or changed.

The rows of all three are united and grouped by message, so the cost is one
shuffle, whatever the size. The functions on DataFrames are pure. `audit()`
reads in an order that makes a running system comparable:

1. the topics, up to their current ends;
2. the database, in one snapshot: everything in 1 was committed before it;
3. the topics again, but only if messages of 2 are not in 1: they may have
   arrived since. Messages in neither 1 nor 2 are too new and are ignored;
4. the lake, up to the offset that refine has reached in each partition;
5. `latest`, which has all of 4 unless a batch or a rebuild is under way.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from ..lake import reader, tables
from ..lake.classification import IDENTITY
from ..lake.epochs import ranked
from ..lake.ingest import read_topics
from ..lake.records import in_range, is_from_outbox, is_promised, parse
from . import jdbc
from .collecting import collect
from .latency import bucket, latency
from .latest_rows import latest_problems
from .report import MESSAGE_COUNTS, Compared, Report

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

MAX_CLOCK_SKEW: Final = 10_000_000
"""Microseconds by which a producer's clock may be ahead of the database's."""

_EARLIEST: Final = datetime.fromtimestamp(0, UTC) + jdbc.MAX_DATABASE_SKEW

_ORIGINS: Final = ("kafka", "database", "lake")


def slim(records: DataFrame, *, origin: str) -> DataFrame:
    """Reduce ranked records to what the audit needs: digests instead of contents."""
    return records.select(
        *IDENTITY,
        *("id", "rank", "partition", "offset"),
        F.md5("key").alias("key_digest"),
        F.md5("value").alias("value_digest"),
        F.col("timestamp").alias("delivered_at"),
        # Tables of earlier versions have times that are out of range.
        in_range(F.coalesce("created_at", "timestamp")).alias("created_at"),
        latency().alias("latency"),
        F.lit(origin).alias("origin"),
    )


def compare(
    kafka: DataFrame,
    *,
    promises: DataFrame | None,
    lake: DataFrame,
    overdue_before: datetime | None = None,
) -> DataFrame:
    """
    Return one row for each message, with a column for each kind of problem.

    Args:
        kafka: The records of the topics, `slim`, with `is_due`: whether the
            lake must have the record by now.
        promises: The messages of the database, or None without a database.
        lake: The records of silver and late, `slim`.
        overdue_before: Records that came into their topic before this time must be
            in the lake, even if refine has not reached them; None for no limit.
    """
    everything = kafka.unionByName(lake, allowMissingColumns=True)
    if promises is None:
        everything = everything.withColumn("state", F.lit(None).cast("string"))
    else:
        everything = everything.unionByName(promises, allowMissingColumns=True)
    counts = [
        F.count_if(F.col("origin") == origin).alias(origin) for origin in _ORIGINS
    ]
    messages = everything.groupBy(*IDENTITY).agg(
        F.min("id").alias("id"),
        F.min("created_at").alias("created_at"),
        F.min("delivered_at").alias("delivered_at"),
        # The latency of the first delivery; duplicates come later.
        bucket(F.min("latency")).alias("latency_bucket"),
        *counts,
        F.max(F.col("state") == jdbc.SENT).alias("is_sent"),
        F.coalesce(F.bool_or("is_due"), F.lit(False)).alias("is_due"),  # noqa: FBT003
        F.count("key_digest").alias("digests"),
        (_differs("key_digest") | _differs("value_digest")).alias("is_altered"),
    )
    k, d, lk = F.col("kafka"), F.col("database"), F.col("lake")
    is_known = F.lit(promises is not None)
    is_behind = ~F.col("is_due") & (k > 0) & (lk == 0)
    is_overdue = F.lit(False)  # noqa: FBT003 - the literal itself
    if overdue_before is not None:
        is_overdue = F.col("delivered_at") < F.lit(overdue_before)
    # That a message waits in the outbox proves nothing of the others.
    is_loss_judged = F.coalesce("is_sent", F.lit(False)) | (  # noqa: FBT003
        (k > 0) & F.col("is_judged")
    )
    flags = {
        "messages": k > 0,
        # A message in the lake was in the topic, and retention has deleted it.
        "lost": F.col("is_sent") & (k == 0) & (lk == 0),
        "unexpected": is_known & F.col("is_judged") & (k > 0) & (d == 0),
        "copies": k - 1,
        "altered": F.col("is_altered"),
        "lake_lost": F.col("is_due") & (lk == 0),
        "lake_copies": lk - 1,
        "overdue": is_behind & is_overdue,
        "pending": ~F.col("is_sent"),
        "behind": is_behind & ~is_overdue,
        "loss_judged": is_loss_judged,
        "loss_unknown": (k > 0) & ~is_loss_judged,
        "keyed": (k > 0) & (F.col("digests") > 0),
        "content_judged": k + d + lk > 1,
        "due": F.col("is_due") | (lk > 0),
    }
    return messages.withColumn("is_judged", _is_judged(promises)).select(
        *IDENTITY,
        "id",
        "created_at",
        "latency_bucket",
        *(
            F.greatest(
                F.coalesce(flags[name].cast("bigint"), F.lit(0)), F.lit(0)
            ).alias(name)
            for name in MESSAGE_COUNTS
        ),
    )


def _differs(digest: str) -> Column:
    """Whether the copies of a message differ; null is the value of a tombstone."""
    text = F.coalesce(digest, F.lit("-"))
    return F.min(text) != F.max(text)


def _is_judged(promises: DataFrame | None) -> Column:
    """
    Whether the archive goes back far enough to contain a message.

    Decided by the time of its first delivery, not by its id: a record that was
    released from the parked table is archived late, with an old id.
    """
    if promises is None:
        return F.lit(False)  # noqa: FBT003 - the literal itself
    oldest = promises.where(F.col("state") == jdbc.SENT).groupBy("source", "topic")
    known = {
        (row["source"], row["topic"]): row["oldest"]
        for row in oldest.agg(
            F.min(F.unix_micros("archived_at")).alias("oldest")
        ).collect()
    }
    verdict = F.lit(False)  # noqa: FBT003 - the literal itself
    for (source, topic), first in known.items():
        is_there = (F.col("source") == source) & (F.col("topic") == topic)
        is_known = F.unix_micros("delivered_at") >= first + MAX_CLOCK_SKEW
        verdict = F.when(is_there, is_known).otherwise(verdict)
    return verdict


def disorder(kafka: DataFrame) -> DataFrame:
    """
    Return first deliveries that came after a higher rank of their key.

    Duplicates do not count: only the first delivery of each message has a
    position in the order.
    """
    nth = Window.partitionBy(*IDENTITY).orderBy("partition", "offset")
    before = (
        Window.partitionBy("source", "topic", "key_digest", "partition")
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        kafka.where(F.col("key_digest").isNotNull())
        .withColumn("nth", F.row_number().over(nth))
        .where("nth = 1")
        .withColumn("mark", F.max("rank").over(before))
        .where("rank < mark")
    )


def split_keys(kafka: DataFrame) -> DataFrame:
    """Return keys that are in more than one partition, and so have no order."""
    return (
        kafka.where(F.col("key_digest").isNotNull())
        .groupBy("source", "topic", "key_digest")
        .agg(F.countDistinct("partition").alias("partitions"), F.min("id").alias("id"))
        .where("partitions > 1")
    )


def audit(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    since: datetime | None = None,
    max_behind_age: float | None = None,
) -> Report:
    """
    Compare database, topics and lake, and count the problems.

    Args:
        since: Only messages created at or after this second; None for all. A message
            without a creation time counts from its timestamp in Kafka.
        max_behind_age: Seconds after which a message in a topic must be in the
            lake, even if refine has not reached it; None for no limit.

    Raises:
        ConfigurationError: the database rejected the statement.
        DatabaseUnavailable: a database cannot be reached.
    """
    tables.create(spark, settings)
    if since is not None:
        # Kafka knows no time before 1970.
        since = max(since.replace(microsecond=0), _EARLIEST)
    limit = None
    if max_behind_age is not None:
        limit = datetime.now(UTC) - timedelta(seconds=max_behind_age)
    kafka = _read_kafka(spark, settings, since).persist()
    kafka.count()
    with jdbc.explained_outbox(settings):
        promises = _read_promises(spark, settings, since)
        if promises is not None:
            promises = promises.persist()
            # All slices, before the topics are read again.
            promises.count()
    if promises is not None:
        sent = promises.where(F.col("state") == jdbc.SENT)
        if not sent.join(kafka, list(IDENTITY), "left_anti").isEmpty():
            kafka = _with_arrived(kafka, promises, _read_kafka(spark, settings, since))
    lake = _read_lake(spark, settings, since).persist()
    lake.count()
    is_merged = not reader.is_changing(spark, settings)
    reached = _reached(kafka, lake.where(~F.col("is_late")))
    due = kafka.join(reached, ["topic", "partition"], "left").withColumn(
        "is_due",
        F.coalesce(F.col("offset") <= F.col("reached"), F.lit(False)),  # noqa: FBT003
    )
    messages = compare(
        _named_as_now(due, settings),
        promises=promises,
        lake=_named_as_now(lake, settings),
        overdue_before=limit,
    )
    latest = _read_latest(spark, settings)
    if since is not None:
        keys = lake.select("source", "topic", "key_digest")
        latest = latest.join(keys, keys.columns, "left_semi")
    of_keys = latest_problems(latest, lake, is_merged=is_merged)
    report = Report(compared(settings, since=since))
    try:
        collect(
            report,
            messages.persist(),
            broken=disorder(kafka),
            split=split_keys(kafka),
            of_keys=of_keys.persist(),
        )
    finally:
        for frame in (kafka, lake, promises, messages, of_keys):
            if frame is not None:
                frame.unpersist()
    return report


def _reached(kafka: DataFrame, silver: DataFrame) -> DataFrame:
    """
    Return the last offset of each partition that refine has read.

    A batch is in late before it is in silver, so only silver tells that it is in
    both. Rows that are older than all that is in the topic are of another one that
    was deleted: its offsets say nothing.
    """
    place = ("topic", "partition")
    oldest = kafka.groupBy(*place).agg(F.min("delivered_at").alias("oldest"))
    is_older = F.coalesce(F.col("delivered_at") < F.col("oldest"), F.lit(False))  # noqa: FBT003
    of_topic = silver.join(F.broadcast(oldest), [*place]).where(~is_older)
    return of_topic.groupBy(*place).agg(F.max("offset").alias("reached"))


def _named_as_now(rows: DataFrame, settings: PipelineSettings) -> DataFrame:
    """
    Give messages from before there were several clusters the source of cluster 0.

    The archive cannot tell them from later ones.
    """
    former = jdbc.former_source(settings)
    if not former:
        return rows
    source = F.col("source")
    now = F.when(source == former, f"{former}/0").otherwise(source)
    return rows.withColumn("source", now)


def compared(settings: PipelineSettings, *, since: datetime | None = None) -> Compared:
    """Return what an audit with these settings compares."""
    databases = jdbc.database_names(settings)
    return Compared(
        topics=settings.topics or (f"all that match {settings.topic_pattern!r}",),
        databases=databases,
        lake=settings.lake,
        tables=(
            *(jdbc.table_names(settings) if databases else ()),
            *("silver", "late", "latest"),
        ),
        since=since,
    )


def _read_kafka(
    spark: SparkSession, settings: PipelineSettings, since: datetime | None
) -> DataFrame:
    # Records come after their creation, if the clocks are right.
    start = since and since - jdbc.MAX_DATABASE_SKEW
    records = parse(read_topics(spark, settings, since=start))
    kept = is_from_outbox() & is_promised() & _is_created_since(since)
    return slim(ranked(records.where(kept), settings), origin="kafka")


def _read_lake(
    spark: SparkSession, settings: PipelineSettings, since: datetime | None
) -> DataFrame:
    # In this order: what a batch has in late was there before its rows in silver.
    silver, late = (tables.read(spark, settings, t) for t in ("silver", "late"))
    kept = is_promised() & jdbc.is_of_topics(settings) & _is_created_since(since)
    in_silver, in_late = (
        slim(ranked(rows.where(kept), settings), origin="lake").withColumn(
            "is_late", F.lit(is_late)
        )
        for rows, is_late in ((silver, False), (late, True))
    )
    return in_silver.unionByName(in_late)


def _is_created_since(since: datetime | None) -> Column:
    if since is None:
        return F.lit(True)  # noqa: FBT003 - the literal itself
    start = F.lit(since)
    is_undated = F.col("created_at").isNull() & (F.col("timestamp") >= start)
    # Not as one condition on `coalesce`: Delta could not skip files by that.
    return (F.col("created_at") >= start) | is_undated


def _read_latest(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    latest = tables.read(spark, settings, "latest").where(jdbc.is_of_topics(settings))
    return ranked(latest, settings).select(
        *("source", "topic", "id", "rank", "partition", "offset"),
        F.col("timestamp").alias("delivered_at"),
        F.md5("key").alias("key_digest"),
    )


def _with_arrived(kafka: DataFrame, promises: DataFrame, now: DataFrame) -> DataFrame:
    """Keep the records of `now` whose messages are in `kafka` or `promises`."""
    ids = [frame.select(*IDENTITY) for frame in (kafka, promises)]
    known = ids[0].unionByName(ids[1]).distinct()
    arrived = now.join(known, list(IDENTITY), "left_semi").persist()
    # Before the first reading is dropped: reading it again would add newer messages.
    arrived.count()
    kafka.unpersist()
    return arrived


def _read_promises(
    spark: SparkSession, settings: PipelineSettings, since: datetime | None
) -> DataFrame | None:
    rows = jdbc.promises(spark, settings, since=since)
    if rows is None:
        return None
    of_topics = rows.where(jdbc.is_of_topics(settings))
    return of_topics.withColumns(
        {"created_at": in_range(F.col("created_at")), "origin": F.lit("database")}
    )
