"""
Checks that a topic is ready before a record to it joins a transaction.

A partition that is still starting can acknowledge records and lose them, and a
record that waits for an unknown topic delays its whole transaction.
"""

from __future__ import annotations

from typing import Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka import Producer as Client

from ..exceptions import DeliveryFailed, RecordPoisoned
from .failures import failure

LOOK_UP_TIMEOUT: Final = 2.0
"""Seconds for one metadata request."""


class Addressed(Protocol):
    """A record of the outbox, or an outgoing message of a consumer."""

    @property
    def topic(self) -> str:
        """The topic it is sent to."""

    @property
    def partition(self) -> int | None:
        """Its explicit partition, if it has one."""


class Destinations:
    """The topics that one client knows; each is looked up until it is ready."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._partitions: dict[str, int] = {}
        self._unready: dict[str, DeliveryFailed] = {}
        self._looked_up: set[str] = set()

    def begin(self) -> None:
        """Look up again what was not ready, and what may have grown."""
        self._unready.clear()
        self._looked_up.clear()

    def check(self, record: Addressed) -> None:
        """
        Check that the record's topic is ready and has its partition.

        Raises:
            DeliveryFailed: the topic does not exist or has no leader now.
            RecordPoisoned: the topic does not have that partition.
        """
        topic, partition = record.topic, record.partition
        count = self._partitions.get(topic)
        may_have_grown = topic not in self._looked_up
        if count is None or ((partition or 0) >= count and may_have_grown):
            if topic in self._unready:
                raise self._unready[topic]
            self._looked_up.add(topic)
            try:
                self._partitions[topic] = count = self._look_up(topic)
            except DeliveryFailed as error:
                self._unready[topic] = error
                raise
        if partition is not None and partition >= count:
            raise RecordPoisoned(
                f"The topic has no partition {partition}: it has {count}.",
                code="_UNKNOWN_PARTITION",
            )

    def _look_up(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
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
