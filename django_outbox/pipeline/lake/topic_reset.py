"""
Starts one topic over, from its first record or from a time; keeps all rows.

The other topics go on where ingest has read them. Records that are read twice
come into bronze twice, as they do after a lost checkpoint. A topic that Kafka no
longer has is dropped: ingest does not miss it any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...exceptions import TopicMissing
from ..kafka_admin import KafkaAdmin, find_topic
from . import read_positions
from .read_positions import ReadPositions, TopicStart

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import SparkSession

    from ..pipeline_settings import PipelineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """What the next run of ingest will read of one partition."""

    topic: str
    partition: int
    start: int
    """The first offset."""
    end: int
    """The offset behind the last record that is committed now."""

    def __str__(self) -> str:
        """Return one line; offsets also count the markers of transactions."""
        count = max(0, self.end - self.start)
        return (
            f"{self.topic} {self.partition}: from offset {self.start} to {self.end},"
            f" {count:,} offsets"
        )


def reset(
    spark: SparkSession,
    settings: PipelineSettings,
    topic: str,
    *,
    since: datetime | None = None,
    dry_run: bool = False,
) -> list[PartitionRange]:
    """
    Let the next run of ingest read a topic again, and accept the topic's id.

    Returns a range for each partition; none if Kafka no longer has the topic.

    Args:
        since: Skip the records before the first one at or after this time, by
            Kafka's timestamps. Never skips an open transaction.
        dry_run: Only return what would be read.

    Raises:
        ConfigurationError: the pipeline does not read this topic.
        KafkaUnavailable: Kafka does not answer.
        TopicMissing: Kafka has no such topic, and ingest has not read it.
    """
    admin = KafkaAdmin(settings)
    positions = read_positions.load(spark, settings)
    try:
        found = find_topic(admin, spark, settings, topic)
    except TopicMissing:
        if topic not in {*positions.topics, *positions.offsets(spark, settings)}:
            raise
        if not dry_run:
            _begin_generation(spark, settings, positions, topic, None)
        return []
    if since is None:
        starting = {}
        first = admin.first_offsets(topic, found.partitions)
    else:
        starting = first = admin.offsets_since(topic, found.partitions, since)
    ends = admin.end_offsets(topic, found.partitions)
    if not dry_run:
        start = TopicStart(topic_id=found.id, starting=starting)
        _begin_generation(spark, settings, positions, topic, start)
    return [
        PartitionRange(topic=topic, partition=n, start=first[n], end=ends[n])
        for n in found.partitions
    ]


def _begin_generation(
    spark: SparkSession,
    settings: PipelineSettings,
    positions: ReadPositions,
    topic: str,
    start: TopicStart | None,
) -> None:
    """Save where each topic goes on: this one at `start`, or nowhere if it is None."""
    offsets = positions.offsets(spark, settings)
    topics = {
        name: replace(
            positions.topics.get(name, TopicStart()), starting=offsets.get(name, {})
        )
        for name in {*positions.topics, *offsets} - {topic}
    }
    if start is not None:
        topics[topic] = start
    following = replace(positions, generation=positions.generation + 1, topics=topics)
    read_positions.save(spark, settings, following)
