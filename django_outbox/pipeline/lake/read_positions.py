"""
Where ingest begins to read each topic, and the ids of the topics that it reads.

Spark's checkpoint holds how far ingest has read. It cannot be changed for one
topic, so starting a topic over begins a new **generation**: a checkpoint of its
own, which begins where the former one has ended, but for that topic. A small
table next to the checkpoints has a row for each topic of the present
generation. It is replaced as a whole, so it is never half written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from ...exceptions import TopicRecreated
from .reader import last_batch, source_offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..kafka_admin import KafkaTopic
    from ..pipeline_settings import PipelineSettings

NAME: Final = "ingest"
"""Name of the query, and of the checkpoint of generation 0."""

EARLIEST: Final = -2
"""Spark's offset for the first record that a partition still has."""

_FOLDER: Final = "topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStart:
    """One topic of a generation."""

    topic_id: str = ""
    """Kafka's id of the topic that is read; empty until it is known."""
    starting: Mapping[int, int] = field(default_factory=dict)
    """Offset of the first record to read, by partition; the others are read from their
    first record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPositions:
    """What a generation of ingest's checkpoint reads."""

    change: int = 0
    """Number of times that something was saved."""
    generation: int = 0
    topics: Mapping[str, TopicStart] = field(default_factory=dict)
    """By name; a topic without an entry is read from its first record."""

    @property
    def checkpoint(self) -> str:
        """Name of the checkpoint."""
        return f"{NAME}-{self.generation}" if self.generation else NAME

    def reached(
        self, spark: SparkSession, settings: PipelineSettings
    ) -> dict[str, dict[int, int]] | None:
        """
        Return how far ingest has read: the next offsets by topic and partition.

        None before the first batch is committed.
        """
        batch = last_batch(spark, settings, self.checkpoint)
        if batch is None:
            return None
        topics = source_offset(spark, settings, self.checkpoint, batch)
        return {
            topic: {int(number): offset for number, offset in partitions.items()}
            for topic, partitions in topics.items()
        }

    @property
    def starts(self) -> dict[str, dict[int, int]]:
        """The first offsets by topic and partition; not those of first records."""
        starts = [(name, topic.starting) for name, topic in self.topics.items()]
        return {name: {**starting} for name, starting in starts if starting}

    def offsets(
        self, spark: SparkSession, settings: PipelineSettings
    ) -> dict[str, dict[int, int]]:
        """Return where the next batch begins: `reached`, or before that `starts`."""
        reached = self.reached(spark, settings)
        return self.starts if reached is None else reached

    def starting_offsets(self, topics: Mapping[str, KafkaTopic]) -> str:
        """Return Spark's option for these topics: it needs every partition."""
        offsets = {}
        for name, topic in topics.items():
            start = self.topics.get(name, TopicStart()).starting
            offsets[name] = {str(n): start.get(n, EARLIEST) for n in topic.partitions}
        return json.dumps(offsets)

    def recognise(self, topics: Mapping[str, KafkaTopic]) -> ReadPositions:
        """
        Compare ids with those that Kafka has now, and add those of new topics.

        Raises:
            TopicRecreated: a topic is another one than before.
        """
        known, recreated = {**self.topics}, {}
        for name, topic in topics.items():
            start = known.get(name, TopicStart())
            if start.topic_id and topic.id and start.topic_id != topic.id:
                recreated[name] = f"{name} has the id {topic.id}, not {start.topic_id}"
            elif topic.id:
                known[name] = replace(start, topic_id=topic.id)
        if recreated:
            raise TopicRecreated(
                f"Deleted and created again: {', '.join(recreated.values())}. Ingest"
                " stopped, so that no record of the new topic is skipped; the lake"
                f" keeps all rows. Run `reset {' '.join(recreated)}` to read the new"
                " topic from its first record."
            )
        return replace(self, topics=known)


def load(spark: SparkSession, settings: PipelineSettings) -> ReadPositions:
    """Return what was saved last; generation 0 before that."""
    try:
        rows = spark.read.text(settings.checkpoint(_FOLDER)).collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return ReadPositions()
    saved = [json.loads(row["value"]) for row in rows]
    # A write that was interrupted may have left the folder without a file.
    if not saved:
        return ReadPositions()
    last = max(saved, key=lambda change: change["change"])
    topics = {
        name: TopicStart(
            topic_id=topic["id"],
            starting={int(n): offset for n, offset in topic["starting"].items()},
        )
        for name, topic in last.pop("topics").items()
    }
    return ReadPositions(**last, topics=topics)


def save_new_ids(
    spark: SparkSession,
    settings: PipelineSettings,
    positions: ReadPositions,
    topics: Mapping[str, KafkaTopic],
) -> ReadPositions:
    """
    Save the ids of topics that are new; return the positions with them.

    Raises:
        TopicRecreated: a topic is another one than before.
    """
    found = positions.recognise(topics)
    return positions if found == positions else save(spark, settings, found)


def save(
    spark: SparkSession, settings: PipelineSettings, positions: ReadPositions
) -> ReadPositions:
    """Save changed positions, and return them with the number of the change."""
    positions = replace(positions, change=positions.change + 1)
    saved = {
        "change": positions.change,
        "generation": positions.generation,
        "topics": {
            name: {"id": topic.topic_id, "starting": topic.starting}
            for name, topic in positions.topics.items()
        },
    }
    frame = spark.createDataFrame([(json.dumps(saved),)], "value STRING").coalesce(1)
    frame.write.mode("append").text(settings.checkpoint(_FOLDER))
    return positions
