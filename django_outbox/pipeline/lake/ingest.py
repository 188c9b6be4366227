"""
Kafka to bronze: every record of the topics, as bytes, exactly once.

The checkpoint has the offsets and the table's log has the number of each
batch, so an interrupted batch is appended once however often it runs. Records
of aborted transactions are not read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from ...exceptions import ConfigurationError
from ..resend.selection import fits
from .reader import last_batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ..pipeline_settings import PipelineSettings

NAME: Final = "ingest"
"""Name of the query, in progress and metrics."""


def kafka_options(settings: PipelineSettings) -> dict[str, str]:
    """
    Return the options for reading the topics, as a stream or as a batch.

    Raises:
        ConfigurationError: no broker or no topic is configured.
    """
    if not settings.kafka.get("bootstrap.servers"):
        raise ConfigurationError(
            "kafka: 'bootstrap.servers' is missing (KAFKA_BOOTSTRAP_SERVERS)."
        )
    if settings.topics:
        topics = {"subscribe": ",".join(settings.topics)}
    elif settings.topic_pattern:
        topics = {"subscribePattern": settings.topic_pattern}
    else:
        raise ConfigurationError(
            "topics: set at least one, or a `topic_pattern`"
            " (OUTBOX_PIPELINE_TOPICS, or --topic)."
        )
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
    return kafka.select(
        *("topic", "partition", "offset", "timestamp"),
        F.col("timestampType").alias("timestamp_type"),
        *("key", "value", "headers"),
    )


def read_topics(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """Read all records that the topics hold now."""
    options = kafka_options(settings)
    return as_bronze(spark.read.format("kafka").options(**options).load())


def start_ingest(
    spark: SparkSession, settings: PipelineSettings, *, trigger: Mapping[str, Any]
) -> StreamingQuery:
    """
    Start the stream from Kafka to bronze; the table must exist.

    Raises:
        ConfigurationError: a topic of the last batch is no longer configured.
    """
    options = kafka_options(settings)
    _check_topics(spark, settings)
    stream = (
        spark.readStream.format("kafka")
        .options(**options)
        # One task per partition, so its records stay in order in one file.
        .option("maxOffsetsPerTrigger", settings.batch_records)
        .load()
    )
    return (
        as_bronze(stream)
        .writeStream.format("delta")
        .queryName(NAME)
        .option("checkpointLocation", settings.checkpoint(NAME))
        .trigger(**trigger)
        .start(settings.table_path("bronze"))
    )


def _check_topics(spark: SparkSession, settings: PipelineSettings) -> None:
    """
    Refuse to drop a topic that has been read before.

    Spark would count its records as lost. Once it has logged a batch without the
    topic, that batch fails even if the topic is configured again.
    """
    if not settings.fail_on_data_loss:
        return
    batch = last_batch(spark, settings, NAME)
    if batch is None:
        return
    lines = spark.read.text(f"{settings.checkpoint(NAME)}/offsets/{batch}").collect()
    read = [(topic,) for topic in json.loads(lines[-1]["value"])]
    if settings.topics:
        setting, is_named = "topics", F.col("topic").isin(*settings.topics)
    else:
        setting, is_named = "topic_pattern", fits("topic", settings.topic_pattern)
    others = spark.createDataFrame(read, "topic STRING").where(~is_named)
    if left_out := ", ".join(sorted(row["topic"] for row in others.collect())):
        raise ConfigurationError(
            f"{setting}: {left_out} has been read into this lake and would count as "
            "lost. Add it again, or set `fail_on_data_loss = false` to drop it."
        )
