"""
Kafka to bronze: every record of the topics, as bytes, exactly once.

The checkpoint has the offsets and the table's log has the number of each
batch, so an interrupted batch is appended once however often it runs. Records
of aborted transactions are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...exceptions import ConfigurationError
from ..kafka_admin import KafkaAdmin, configured, configured_topics
from ..pipeline_settings import NO_TOPICS
from . import read_positions, tables
from .restored_checkpoint import refuse_restored

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ..pipeline_settings import PipelineSettings
    from .read_positions import ReadPositions

NAME: Final = read_positions.NAME
"""Name of the query, in progress and metrics."""


def kafka_options(settings: PipelineSettings) -> dict[str, str]:
    """
    Return the options for reading the topics, as a stream or as a batch.

    Raises:
        ConfigurationError: no broker or no topic is configured.
    """
    settings.require_brokers()
    if settings.topics:
        topics = {"subscribe": ",".join(settings.topics)}
    elif settings.topic_pattern:
        topics = {"subscribePattern": settings.topic_pattern}
    else:
        raise ConfigurationError(NO_TOPICS)
    return {
        **{f"kafka.{key}": value for key, value in settings.kafka.items()},
        **topics,
        # Spark's default also reads records of aborted transactions.
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "failOnDataLoss": str(settings.fail_on_data_loss).lower(),
    }


def as_bronze(kafka: DataFrame) -> DataFrame:
    """Rename Kafka's columns to those of bronze."""
    renamed = kafka.withColumnRenamed("timestampType", "timestamp_type")
    return renamed.select(*tables.BRONZE_COLUMNS)


def read_topics(
    spark: SparkSession, settings: PipelineSettings, *, since: datetime | None = None
) -> DataFrame:
    """
    Read the records that the topics hold now.

    Args:
        since: Begin in each partition with the first record whose timestamp is not
            before this time; None for all records.
    """
    options = kafka_options(settings)
    if since is not None:
        options |= {
            "startingTimestamp": str(int(since.timestamp() * 1000)),
            # Without such a record there is nothing to read.
            "startingOffsetsByTimestampStrategy": "latest",
        }
    return as_bronze(spark.read.format("kafka").options(**options).load())


def start_ingest(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    trigger: Mapping[str, Any],
    report: Callable[[str], None] = lambda _: None,
) -> StreamingQuery:
    """
    Start the stream from Kafka to bronze; the table must exist.

    Args:
        report: Called with one line if a new checkpoint begins on a lake with rows.

    Raises:
        ConfigurationError: a topic of the last batch is no longer configured, or the
            checkpoint was put back from a copy.
        KafkaUnavailable: Kafka does not answer; call again later.
        TopicRecreated: a topic was deleted and created again.
    """
    options = kafka_options(settings)
    positions = read_positions.load(spark, settings)
    refuse_restored(spark, settings, positions.checkpoint, ("bronze",))
    reached = positions.reached(spark, settings)
    _check_topics(spark, settings, positions.starts if reached is None else reached)
    # Version 0 has made the table; later ones have added rows.
    if reached is None and tables.newest_version(spark, settings, "bronze"):
        report(_describe_start(positions))
    begins_there = reached is None and positions.generation > 0
    if settings.topic_ids or begins_there:
        topics = configured_topics(KafkaAdmin(settings), spark, settings)
        if settings.topic_ids:
            read_positions.save_new_ids(spark, settings, positions, topics)
        if begins_there:
            options["startingOffsets"] = positions.starting_offsets(topics)
    stream = (
        spark.readStream.format("kafka")
        .options(**options)
        .option("maxOffsetsPerTrigger", settings.batch_records)
        .load()
    )
    # A partition's records stay in order in one file; a file has several partitions
    # if there are more of them than tasks.
    files = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    return (
        as_bronze(stream)
        .coalesce(files)
        .writeStream.format("delta")
        .queryName(NAME)
        .option("checkpointLocation", settings.checkpoint(positions.checkpoint))
        .trigger(**trigger)
        .start(settings.table_path("bronze"))
    )


def _describe_start(positions: ReadPositions) -> str:
    if positions.generation:
        return "Ingest begins where `reset` has set it."
    return (
        "bronze has rows, but ingest has no checkpoint: it reads all topics from their"
        " first records. Refine recognises records that were read before."
    )


def _check_topics(
    spark: SparkSession, settings: PipelineSettings, read: Collection[str]
) -> None:
    """
    Refuse to drop a topic that has been read before.

    Spark would count its records as lost. Once it has logged a batch without the
    topic, that batch fails even if the topic is configured again.
    """
    if not (settings.fail_on_data_loss and read):
        return
    others = {*read} - {*configured(spark, settings, read)}
    if left_out := ", ".join(sorted(others)):
        setting = "topics" if settings.topics else "topic_pattern"
        raise ConfigurationError(
            f"{setting}: {left_out} has been read into this lake and would count as "
            "lost. Add it again, or set `fail_on_data_loss = false` to drop it."
        )
