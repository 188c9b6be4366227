"""
Listen to the leader partition without being a member of the group.

A standby is assigned nothing and hears nothing; a newcomer is not even a member.
With this consumer, which is assigned by hand, either hears who leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from ..election.ports import Heartbeat
from . import heartbeats
from .clients import make
from .config import KafkaConfig
from .logs import ClientLog

MAX_MESSAGES_PER_POLL: Final = 100
"""Messages of one look at most, so that a flood cannot hold it."""


class Watch:
    """
    Hears what is written from now on; for one thread.

    Args:
        config: see `config.watch_config`.
        topic: the leader topic.
        shard: its partition.

    Raises:
        KafkaUnavailable: no client can be made now.
    """

    def __init__(self, config: KafkaConfig, *, topic: str, shard: int) -> None:
        # The member of the group reports what is wrong with the cluster.
        quiet: KafkaConfig = {
            "error_cb": lambda _: None,
            "logger": ClientLog(lambda _: None),
        }
        self._consumer = make(Consumer, config | quiet)
        # An hour of heartbeats may lie there, of outboxes that are long gone.
        self._consumer.assign([TopicPartition(topic, shard, OFFSET_END)])

    def heard(self) -> Iterator[Heartbeat]:
        """Yield the heartbeats that have come since the last look."""
        for _ in range(MAX_MESSAGES_PER_POLL):
            try:
                message = self._consumer.poll(0)
            except KafkaException:
                return
            if message is None:
                return
            if message.error() is None and (heartbeat := heartbeats.read(message)):
                yield heartbeat

    def close(self) -> None:
        """Drop the client."""
        self._consumer.close()
