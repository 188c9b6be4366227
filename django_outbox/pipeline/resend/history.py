"""
The lake to Kafka: history once more, in the order of its ids for each key.

It reads `silver`, as one version of the table, so that what was counted is
what is sent, and hands rows in order to `sending.py`. A record keeps its key,
its value and its headers, the message id among them, and gets one header
more: `outbox-replay`, the id of the run.

Old ids behind newer ones are what consumers take for disorder. So they go to
a topic of their own, and to one that is in use only by force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ...exceptions import ConfigurationError
from ..lake import tables
from .selection import Selection, fits, select
from .sending import producer_options, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

HEADER: Final = "outbox-replay"
"""The header with the run's id."""

TO: Final = "{topic}.replay"
"""Where records go: `{topic}` is the name of the topic they came from."""

RECORDS_A_SECOND: Final = 30_000
BYTES_A_SECOND: Final = 20_000_000
"""What a laptop's two cores send; for estimates (docs/howto/replay.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where the records go."""

    to: str = TO
    """Name of the topic; `{topic}` stands for the one they came from."""
    is_forced: bool = False
    """Whether it may be a topic that is in use."""
    keeps_partitions: bool = False
    """Whether a record's partition is the same as before, and not its key's."""

    def of(self, topic: str) -> str:
        """Return the name for records of a topic."""
        return self.to.replace("{topic}", topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What goes from one source and topic to one destination."""

    source: str
    topic: str
    destination: str
    records: int
    bytes: int
    """Of keys and values."""

    @property
    def seconds(self) -> float:
        """How long it may take."""
        return max(self.records / RECORDS_A_SECOND, self.bytes / BYTES_A_SECOND)


def outgoing(records: DataFrame, destination: Destination, *, run: str) -> DataFrame:
    """
    Records of silver as `send()` wants them, those of each key in their order.

    All of a key are in one task, and each task has them by id: as they were
    written, and the same each time a task is tried again.
    """
    order = ("source", "topic", "id", "message_id")
    # Nothing orders records without a key: they need not share a task.
    lane = (F.coalesce(F.col("key"), F.col("message_id").cast("binary")), "topic")
    mark = F.struct(F.lit(HEADER).alias("key"), F.lit(run.encode()).alias("value"))
    partition = F.col("partition") if destination.keeps_partitions else F.lit(None)
    return (
        records.repartition(*lane)
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
    Send what is selected, and return what was sent where.

    Args:
        run: Id of the run, for the header `outbox-replay`.
        is_dry: Count only; returns what would be sent.

    Raises:
        ConfigurationError: a destination is in use and not forced, the
            condition is wrong, or there is no broker.
        TopicMissing: a destination is missing and is not made by the broker.
        KafkaError: not all were sent; start again, in a new topic.
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
        send(outgoing(records, destination, run=run), settings)
    return parts


def _pinned(spark: SparkSession, settings: PipelineSettings, table: str) -> DataFrame:
    """The table as it is now, even if it changes meanwhile."""
    history = spark.sql(f"DESCRIBE HISTORY {tables.name(settings, table)} LIMIT 1")
    version = int(history.collect()[0]["version"])
    path = settings.table_path(table)
    return spark.read.format("delta").option("versionAsOf", version).load(path)


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
            f"to: {', '.join(sorted(in_use))} is in use, it is a topic that this lake"
            " keeps. Its consumers would get old messages behind newer ones: those"
            " that know neither message ids nor the order of ids would go back in"
            " time. Choose a new topic (--to), or --force it."
        )
