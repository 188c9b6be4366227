"""
Collects compared messages into a report.

Only aggregated rows and the examples leave Spark, whatever the number of messages.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from .latest_rows import OF_LATEST
from .report import IN_TRANSIT, MESSAGE_COUNTS, OF_MESSAGES, SPAN, Report

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_EXAMPLES: Final = 20
"""Ids that a report lists for each count."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def collect(
    report: Report,
    messages: DataFrame,
    *,
    broken: DataFrame,
    split: DataFrame,
    of_keys: DataFrame,
) -> None:
    """
    Add counts, latencies and examples to a report.

    Args:
        messages: A row for each message, with the counts in `MESSAGE_COUNTS`.
        broken: A row for each message that is out of order.
        split: A row for each key in more than one partition.
        of_keys: A row for each key that is wrong in `latest`.
    """
    group = ("source", "topic", "hour")
    broken = broken.withColumn("disorder", F.lit(1)).withColumn("hour", _hour())
    split = split.withColumn("split_keys", F.lit(1))
    messages = messages.withColumn("hour", _hour())
    is_in_transit = F.expr(" + ".join([*IN_TRANSIT, "overdue"])) > 0
    sums = [
        *(F.sum(name).alias(name) for name in MESSAGE_COUNTS),
        F.unix_micros(F.min("created_at")).alias("oldest"),
        F.unix_micros(F.max("created_at")).alias("newest"),
        F.unix_micros(F.min(F.when(is_in_transit, F.col("created_at")))).alias(
            "oldest_in_transit"
        ),
    ]
    latencies = messages.where(F.col("latency_bucket").isNotNull())
    by_topic = [
        rows.groupBy("source", "topic").agg(*(F.sum(n).alias(n) for n in names))
        for rows, names in (
            (split, ("split_keys",)),
            (of_keys, OF_LATEST),
        )
    ]
    for counted in (
        messages.groupBy(*group).agg(*sums),
        broken.groupBy(*group).agg(F.count("*").alias("disorder")),
        *by_topic,
    ):
        for row in _rows(counted):
            report.add(row)
    for row in _rows(latencies.groupBy(*group, "latency_bucket").count()):
        report.add_latency(row)
    found = _examples(messages, *OF_MESSAGES)
    for rows, name in (
        (broken, "disorder"),
        (split, "split_keys"),
        *((of_keys, name) for name in OF_LATEST),
    ):
        if report.total(name):
            found = found.unionByName(_examples(rows, name))
    for example in found.orderBy("name", "id").collect():
        report.examples.setdefault(example["name"], []).append(example["id"])


def _rows(counted: DataFrame) -> list[dict[str, Any]]:
    """Collect rows, with times in UTC: PySpark would use the local time zone."""
    times = [name for name in ("hour", *SPAN) if name in counted.columns]
    if "hour" in times:
        counted = counted.withColumn("hour", F.unix_micros("hour"))
    rows = [row.asDict() for row in counted.collect()]
    for row in rows:
        for name in times:
            if row[name] is not None:
                row[name] = _EPOCH + timedelta(microseconds=row[name])
    return rows


def _examples(rows: DataFrame, *names: str) -> DataFrame:
    """Return the lowest ids for each of these counts that is not 0."""
    nth = Window.partitionBy("name").orderBy("id")
    wrong = [
        F.struct(F.lit(name).alias("name"), F.col(name).cast("bigint").alias("count"))
        for name in names
    ]
    return (
        rows.select("id", F.explode(F.array(*wrong)).alias("wrong"))
        .where("wrong.count > 0")
        .select("id", "wrong.name")
        .withColumn("nth", F.row_number().over(nth))
        .where(F.col("nth") <= MAX_EXAMPLES)
        .select("name", "id")
    )


def _hour() -> Column:
    return F.date_trunc("hour", "created_at")
