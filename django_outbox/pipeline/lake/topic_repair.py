"""
Appends the records to bronze that it lacks, although ingest has passed them.

Reads the topic again as a batch and compares places: topic, partition, offset
and timestamp. Refine reads what is appended like any other rows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ...exceptions import ConfigurationError
from ..kafka_admin import KafkaAdmin, find_topic
from . import read_positions, tables
from .classification import PLACE
from .conflicts import retry_conflicts
from .ingest import as_bronze, kafka_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings


def repair(
    spark: SparkSession,
    settings: PipelineSettings,
    topic: str,
    *,
    partition: int | None = None,
    first: int = 0,
    last: int | None = None,
) -> dict[int, int]:
    """
    Append missing records; return their number for each partition that was read.

    Reads nothing that the next run of ingest will read.

    Args:
        partition: Only this one; default: all.
        first: The first offset.
        last: The last offset, included; default: the last that ingest has read.

    Raises:
        ConfigurationError: the pipeline does not read this topic, or it has no such
            partition.
        KafkaUnavailable: Kafka does not answer.
        TopicMissing: Kafka has no such topic.
        TopicRecreated: the topic is not the one that ingest has read.
    """
    ranges = _ranges(spark, settings, topic)
    if partition is not None:
        if partition not in ranges:
            raise ConfigurationError(f"Topic {topic} has no partition {partition}.")
        ranges = {partition: ranges[partition]}
    wanted = {
        number: (max(start, first), end if last is None else min(end, last + 1))
        for number, (start, end) in ranges.items()
    }
    wanted = {at: (start, end) for at, (start, end) in wanted.items() if start < end}
    counts = dict.fromkeys(ranges, 0)
    if not wanted:
        return counts
    bronze = tables.read(spark, settings, "bronze").where(F.col("topic") == topic)
    missing = _read(spark, settings, topic, wanted)
    missing = missing.join(bronze, list(PLACE), "left_anti").persist()
    try:
        for row in missing.groupBy("partition").count().collect():
            counts[row["partition"]] = row["count"]
        if any(counts.values()):
            write = missing.write.format("delta").mode("append")
            retry_conflicts(lambda: write.save(settings.table_path("bronze")))
    finally:
        missing.unpersist()
    return counts


def _ranges(
    spark: SparkSession, settings: PipelineSettings, topic: str
) -> dict[int, tuple[int, int]]:
    """Return what Kafka has of the offsets that ingest has read, by partition."""
    admin = KafkaAdmin(settings)
    found = find_topic(admin, spark, settings, topic)
    positions = read_positions.load(spark, settings)
    positions.recognise({topic: found})
    offsets = positions.offsets(spark, settings).get(topic, {})
    first = admin.first_offsets(topic, found.partitions)
    return {n: (first[n], offsets.get(n, 0)) for n in found.partitions}


def _read(
    spark: SparkSession,
    settings: PipelineSettings,
    topic: str,
    ranges: Mapping[int, tuple[int, int]],
) -> DataFrame:
    options = kafka_options(replace(settings, topics=(topic,), topic_pattern=""))
    del options["subscribe"]
    options["assign"] = json.dumps({topic: [*ranges]})
    for name, index in (("startingOffsets", 0), ("endingOffsets", 1)):
        offsets = {str(number): ends[index] for number, ends in ranges.items()}
        options[name] = json.dumps({topic: offsets})
    return as_bronze(spark.read.format("kafka").options(**options).load())
