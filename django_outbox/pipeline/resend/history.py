"""
Replay: sends records of the lake to Kafka again, in order for each key.

It reads one version of `silver`, so that the records that were counted are the
records that are sent. A record keeps its key, its value and its headers,
including the message id, and gets one more header: `outbox-replay`, the id of
the run.

Consumers treat old ids after newer ones as out of order. So records go to a
new topic, and to a topic that is in use only with `is_forced`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ...exceptions import ConfigurationError
from ..lake import tables
from ..lake.epochs import ranked
from ..lake.records import fits
from .selection import Selection, select
from .sending import producer_options, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

HEADER: Final = "outbox-replay"
"""Header with the id of the run."""

TO: Final = "{topic}.replay"
"""Default target topic; `{topic}` stands for the original topic."""

RECORDS_A_SECOND: Final = 30_000
BYTES_A_SECOND: Final = 20_000_000
"""Throughput of two laptop cores, for estimates (docs/howto/replay.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The target of a replay."""

    to: str = TO
    """Target topic; `{topic}` stands for the original topic."""
    is_forced: bool = False
    """Whether the target may be a topic that is in use."""
    keeps_partitions: bool = False
    """Whether records keep their partition; otherwise the key decides."""

    def of(self, topic: str) -> str:
        """Return the target for records of a topic."""
        return self.to.replace("{topic}", topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The records of one source and topic."""

    source: str
    topic: str
    destination: str
    records: int
    bytes: int
    """Size of keys and values."""

    @property
    def seconds(self) -> float:
        """Estimated duration."""
        return max(self.records / RECORDS_A_SECOND, self.bytes / BYTES_A_SECOND)


def outgoing(records: DataFrame, destination: Destination, *, run: str) -> DataFrame:
    """
    Turn ranked rows of silver into Kafka records, in order for each key.

    All records of a key are in one task, sorted by rank: the order in which they
    were written, and the same whenever a task is retried.
    """
    order = ("source", "topic", "rank", "message_id")
    # Records without a key have no order and need not share a task.
    ordering_key = (
        F.coalesce(F.col("key"), F.col("message_id").cast("binary")),
        "topic",
    )
    mark = F.struct(F.lit(HEADER).alias("key"), F.lit(run.encode()).alias("value"))
    partition = F.col("partition") if destination.keeps_partitions else F.lit(None)
    return (
        records.repartition(*ordering_key)
        .sortWithinPartitions(*order)
        .select(
            F.replace(F.lit(destination.to), F.lit("{topic}"), F.col("topic")).alias(
                "topic"
            ),
            partition.cast("int").alias("partition"),
            *("key", "value"),
            F.concat(F.coalesce("headers", F.array()), F.array(mark)).alias("headers"),
        )
    )


def replay(
    spark: SparkSession,
    settings: PipelineSettings,
    selection: Selection,
    destination: Destination,
    *,
    run: str,
    is_dry: bool = False,
) -> list[Part]:
    """
    Send the selected records, and return a summary for each source and topic.

    Args:
        run: Id of the run, for the header `outbox-replay`.
        is_dry: Only count; send nothing.

    Raises:
        ConfigurationError: a target is in use and not forced, the condition is
            invalid, or no broker is configured.
        TopicMissing: a target does not exist and the broker does not create it.
        KafkaError: not all records were sent; run it again with a new topic.
    """
    producer_options(settings)
    tables.create(spark, settings)
    silver = _pinned(spark, settings, "silver")
    records = silver
    if selection.includes_late:
        late = _pinned(spark, settings, "late").drop("mark")
        records = records.unionByName(late)
    records = select(records, selection)
    parts = _count(records, destination)
    if not destination.is_forced:
        _refuse_topics_in_use(parts, silver, settings)
    if parts and not is_dry:
        send(
            outgoing(ranked(records, settings), destination, run=run),
            settings,
            again="Run it again with another target topic (--to), or let the consumer"
            f" leave out records with the header {HEADER}={run}.",
        )
    return parts


def _pinned(spark: SparkSession, settings: PipelineSettings, table: str) -> DataFrame:
    """Read the current version of a table; later changes do not show."""
    version = tables.newest_version(spark, settings, table)
    return tables.read(spark, settings, table, version=version)


def _count(records: DataFrame, destination: Destination) -> list[Part]:
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(
        F.length("value"), F.lit(0)
    )
    counted = records.groupBy("source", "topic").agg(
        F.count("*").alias("records"), F.sum(size.cast("bigint")).alias("bytes")
    )
    return [
        Part(
            source=row["source"],
            topic=row["topic"],
            destination=destination.of(row["topic"]),
            records=row["records"],
            bytes=row["bytes"],
        )
        for row in counted.orderBy("source", "topic").collect()
    ]


def _refuse_topics_in_use(
    parts: Sequence[Part], silver: DataFrame, settings: PipelineSettings
) -> None:
    wanted = sorted({part.destination for part in parts})
    in_use = {*settings.topics, *(part.topic for part in parts)} & set(wanted)
    if not in_use and wanted:
        spark = silver.sparkSession
        names = spark.createDataFrame([(name,) for name in wanted], "topic STRING")
        found = silver.select("topic").where(F.col("topic").isin(*wanted)).distinct()
        if settings.topic_pattern:
            found = found.unionByName(
                names.where(fits("topic", settings.topic_pattern))
            )
        in_use = {row["topic"] for row in found.collect()}
    if in_use:
        raise ConfigurationError(
            f"to: {', '.join(sorted(in_use))} is in use: this lake reads it. Its"
            " consumers would get old messages after newer ones, and those that"
            " check neither message ids nor the order of ids would restore old"
            " states. Choose a new topic (--to), or use --force."
        )
