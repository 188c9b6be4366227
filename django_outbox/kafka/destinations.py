"""
Whether a topic is up, before a record to it joins a transaction.

To a partition that is still coming up, records can be acknowledged and lost;
and a record that waits for an unknown topic holds up its whole transaction.
"""

from __future__ import annotations

from typing import Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka import Producer as Client

from ..exceptions import DeliveryFailed, RecordPoisoned
from .failures import failure

LOOK_UP_TIMEOUT: Final = 2.0
"""Seconds for the broker to tell of a topic."""


class Addressed(Protocol):
    """A record of the outbox, or a letter of a consumer."""

    @property
    def topic(self) -> str:
        """Where it goes."""

    @property
    def partition(self) -> int | None:
        """The partition that was chosen for it, if one was."""


class Destinations:
    """What one client knows of topics; each is looked up once when it is up."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._partitions: dict[str, int] = {}
        self._unready: dict[str, DeliveryFailed] = {}

    def begin(self) -> None:
        """Look again at topics that were not up, from here on."""
        self._unready.clear()

    def check(self, record: Addressed) -> None:
        """
        Return when the record's partition has a leader, as far as is known.

        Raises:
            DeliveryFailed: its topic or partition is not there, or not yet.
        """
        topic = record.topic
        count = self._partitions.get(topic)
        if count is None:
            if topic in self._unready:
                raise self._unready[topic]
            try:
                self._partitions[topic] = count = self._look_up(topic)
            except DeliveryFailed as error:
                self._unready[topic] = error
                raise
        if record.partition is not None and record.partition >= count:
            raise RecordPoisoned(
                f"The topic has no partition {record.partition}: it has {count}.",
                code="_UNKNOWN_PARTITION",
            )

    def _look_up(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        try:
            found = self._client.list_topics(topic, timeout=LOOK_UP_TIMEOUT)
        except KafkaException as error:
            raise failure(error.args[0], is_alone=True) from error
        metadata = found.topics[topic]
        if metadata.error is not None:
            raise failure(metadata.error, is_alone=True)
        if any(partition.leader < 0 for partition in metadata.partitions.values()):
            raise DeliveryFailed(
                "A partition of the topic has no leader.", code="LEADER_NOT_AVAILABLE"
            )
        return len(metadata.partitions)
