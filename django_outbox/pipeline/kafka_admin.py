"""
Asks Kafka for the topics: their ids, their partitions and the offsets.

A topic that was deleted and created again has the same name and another id.
Requests are sent by the driver; Spark's executors need no client for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ..exceptions import ConfigurationError, KafkaError, KafkaUnavailable, TopicMissing
from .java_properties import translate_properties
from .lake.records import fits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .pipeline_settings import PipelineSettings

REQUEST_TIMEOUT: Final = 30.0
"""Seconds for one request."""

_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""Sixteen zero bytes: the broker has no topic ids."""

_MISSING: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})
"""Errors of a topic that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTopic:
    """A topic that exists now."""

    id: str
    """Differs for each creation of the topic; empty if the broker has no ids."""
    partitions: tuple[int, ...]
    """Their numbers, in order."""


class KafkaAdmin:
    """A connection to the brokers of a pipeline."""

    def __init__(self, settings: PipelineSettings) -> None:
        """
        Connect in the background.

        Raises:
            ConfigurationError: confluent-kafka is not installed, a property of the
                Java client cannot be translated, or librdkafka does not accept one.
        """
        try:
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                "topic_ids: confluent-kafka, which asks Kafka for the ids of the"
                " topics, is not installed. Run: pip install confluent-kafka. Or set"
                " `topic_ids = false` to read without comparing them."
            ) from error
        self._last_error = ""
        config: dict[str, Any] = {
            **translate_properties(settings.kafka),
            # Errors are raised, not logged.
            "log_level": 0,
            "error_cb": self._keep,
        }
        try:
            self._client = AdminClient(config)
        except KafkaException as error:
            raise ConfigurationError(f"kafka: {error.args[0].str()}.") from error

    def _keep(self, error: Any) -> None:
        # This one follows those that say why.
        if error.name() != "_ALL_BROKERS_DOWN":
            self._last_error = error.str()

    def names(self) -> list[str]:
        """Return the names of all topics that this user may see."""
        from confluent_kafka import KafkaException

        try:
            return [*self._client.list_topics(timeout=REQUEST_TIMEOUT).topics]
        except KafkaException as error:
            raise self._failure(error.args[0]) from error

    def describe(self, names: Sequence[str]) -> dict[str, KafkaTopic]:
        """Return those topics that exist; without Kafka's internal ones."""
        from confluent_kafka import TopicCollection

        if not names:
            return {}
        asked = self._client.describe_topics(
            TopicCollection([*names]), request_timeout=REQUEST_TIMEOUT
        )
        return {
            name: KafkaTopic(
                id=_id(topic),
                partitions=tuple(sorted(int(p.id) for p in topic.partitions)),
            )
            for name, topic in self._results(asked.items())
            if not topic.is_internal
        }

    def first_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the first offset that each partition still has."""
        return self._offsets(topic, partitions, "earliest")

    def end_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """
        Return the offset behind the last record of each partition.

        Where a transaction is open, that is the offset of its first record.
        """
        return self._offsets(topic, partitions, "latest")

    def offsets_since(
        self, topic: str, partitions: Sequence[int], moment: datetime
    ) -> dict[int, int]:
        """
        Return the first offset of each partition at or after a moment.

        That is the end where no record is so new. No offset is behind the first
        record of an open transaction.
        """
        # The ends come first, so that no record that arrives meanwhile is skipped.
        ends = self.end_offsets(topic, partitions)
        # The protocol gives negative times another meaning.
        milliseconds = max(0, int(moment.timestamp() * 1000))
        found = self._offsets(topic, partitions, "for_timestamp", milliseconds)
        return {
            at: found[at] if 0 <= found[at] <= ends[at] else ends[at] for at in ends
        }

    def _offsets(
        self, topic: str, partitions: Iterable[int], which: str, *arguments: int
    ) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin._listoffsets import OffsetSpec

        spec = getattr(OffsetSpec, which)(*arguments)
        answers = self._client.list_offsets(
            {TopicPartition(topic, number): spec for number in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=REQUEST_TIMEOUT,
        )
        found = self._results(answers.items())
        return {at.partition: int(answer.offset) for at, answer in found}

    def _results(
        self, answers: Iterable[tuple[Any, Future[Any]]]
    ) -> Iterable[tuple[Any, Any]]:
        """Yield the results; leave out topics that do not exist."""
        from confluent_kafka import KafkaException

        for asked, future in answers:
            try:
                yield asked, future.result(REQUEST_TIMEOUT + 0.5)
            except FutureTimeout as error:
                raise KafkaUnavailable from error
            except KafkaException as error:
                if error.args[0].name() not in _MISSING:
                    raise self._failure(error.args[0]) from error

    def _failure(self, error: Any) -> KafkaError:
        # The error of the request only says that time is over; the client's errors,
        # which say why, are delivered here.
        self._client.poll(0)
        reason = self._last_error or error.str()
        if error.retriable() or error.name() in {"_TIMED_OUT", "_TRANSPORT"}:
            return KafkaUnavailable(f"Kafka is unavailable: {reason}.")
        return KafkaError(f"Kafka refused a request: {error.str()} ({error.name()}).")


def configured_topics(
    admin: KafkaAdmin, spark: SparkSession, settings: PipelineSettings
) -> Mapping[str, KafkaTopic]:
    """Return the topics of the settings that exist, by name."""
    return admin.describe(settings.topics or configured(spark, settings, admin.names()))


def configured(
    spark: SparkSession, settings: PipelineSettings, names: Iterable[str]
) -> list[str]:
    """Return those of the names that the settings tell the pipeline to read."""
    if settings.topics:
        return [name for name in names if name in settings.topics]
    # The pattern is one of Java, so Java has to match it.
    rows = spark.createDataFrame([(name,) for name in names], "topic STRING")
    matching = rows.where(fits("topic", settings.topic_pattern)).collect()
    return [row["topic"] for row in matching]


def find_topic(
    admin: KafkaAdmin, spark: SparkSession, settings: PipelineSettings, name: str
) -> KafkaTopic:
    """
    Return one topic of the settings.

    Raises:
        ConfigurationError: the pipeline does not read this topic.
        TopicMissing: Kafka has no such topic.
    """
    if not configured(spark, settings, [name]):
        names = ", ".join(settings.topics) or settings.topic_pattern
        raise ConfigurationError(
            f"topics: the pipeline does not read {name!r}, only {names}."
        )
    found = admin.describe([name]).get(name)
    if found is None:
        raise TopicMissing(f"Kafka has no topic {name}.")
    return found


def _id(description: Any) -> str:
    text = str(description.topic_id or "")
    return "" if text == _NO_ID else text
