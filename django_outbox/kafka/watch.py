"""
Reads leader partitions without being a member of the group.

A standby is assigned nothing, and a process that has not joined is not a member.
With this consumer, which is assigned by hand, both learn who leads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from ..election.ports import Heartbeat
from . import heartbeats
from .client_errors import SILENT
from .clients import make
from .config import KafkaConfig

MAX_MESSAGES_PER_POLL: Final = 100
"""Messages that one call reads at most, so that a flood cannot block it."""


class Watch:
    """
    Reads heartbeats from now on; for one thread.

    Args:
        config: properties of the consumer.
        topic: the leader topic.
        shards: partitions of it.

    Raises:
        KafkaUnavailable: the client could not be created now.
    """

    def __init__(
        self, config: KafkaConfig, *, topic: str, shards: Collection[int]
    ) -> None:
        self._topic = topic
        self._shards: Collection[int] = ()
        # The member of the group logs errors of the cluster.
        self._consumer = make(Consumer, config | SILENT)
        self.turn_to(shards)

    def turn_to(self, shards: Collection[int]) -> None:
        """Read these partitions from now on, and no others."""
        if {*shards} == {*self._shards}:
            return
        self._shards = shards
        # Start at the end: older heartbeats may be of outboxes that are gone.
        ends = [TopicPartition(self._topic, shard, OFFSET_END) for shard in shards]
        self._consumer.assign(ends)

    def heard(self) -> Iterator[tuple[Heartbeat, int]]:
        """Yield the heartbeats since the last call, each with its partition."""
        for _ in range(MAX_MESSAGES_PER_POLL):
            try:
                message = self._consumer.poll(0)
            except KafkaException:
                return
            if message is None:
                return
            shard = message.partition()
            if message.error() or shard is None:
                continue
            if heartbeat := heartbeats.read(message):
                yield heartbeat, shard

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
