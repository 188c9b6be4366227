"""Compares the topics that ingest reads with those that it began to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kafka_admin import KafkaAdmin, configured_topics
from . import read_positions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline_settings import PipelineSettings


class TopicIds:
    """The ids of a pipeline's topics, compared as often as needed."""

    def __init__(self, spark: SparkSession, settings: PipelineSettings) -> None:
        """
        Read the saved ids.

        Raises:
            ConfigurationError: this process cannot ask Kafka for ids.
        """
        self._spark, self._settings = spark, settings
        self._admin = KafkaAdmin(settings)
        self._known = read_positions.load(spark, settings)

    def check(self) -> None:
        """
        Compare the ids with those in Kafka now; save those of new topics.

        Raises:
            KafkaUnavailable: Kafka does not answer; call again later.
            TopicRecreated: a topic was deleted and created again.
        """
        topics = configured_topics(self._admin, self._spark, self._settings)
        if self._known.recognise(topics) != self._known:
            # `reset` may have replaced the positions meanwhile.
            now = read_positions.load(self._spark, self._settings)
            self._known = read_positions.save_new_ids(
                self._spark, self._settings, now, topics
            )
