"""
How large a batch may be, where topics take less than librdkafka would send.

A broker refuses a batch that is larger than `max.message.bytes` of its topic, however
small its records are. A topic that has refused one is looked up. Later clients send no
larger batches, and a record that is too large for its topic does not enter the
pipeline, where its refusal would end the client. No topic is looked up before that:
most take more than a batch has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from ..exceptions import KafkaUnavailable, RecordPoisoned
from ..message.record import Record, size_of
from ..relay.batch import Fault
from .clients import answer_of, make
from .config import KafkaConfig

logger = logging.getLogger(__name__)

LOOK_UP_TIMEOUT: Final = 1.0
"""Seconds for one request."""

RETRY_INTERVAL: Final = 10.0
"""Seconds before a topic without an answer is looked up again: records wait for it."""

_DEFAULT: Final = 1_000_000
"""Bytes of a batch, if a project has not set `batch.size`."""


class BatchLimit:
    """
    The limits of all topics that have refused a batch.

    Args:
        config: properties of an admin client.
    """

    def __init__(
        self, config: KafkaConfig, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._clock = clock
        self._look_up_at: dict[str, float] = {}
        """By topic that has refused a batch; infinity: its limit is known."""
        self._limits: dict[str, int] = {}

    def refused(self, faults: Iterable[Fault]) -> None:
        """Note whose batches were refused for one of their records, or their size."""
        for record, error in faults:
            if isinstance(error, RecordPoisoned) and not error.is_certain:
                at = self._look_up_at.setdefault(record.topic, -inf)
                if at == inf:
                    # It was known, and may have been changed.
                    self._look_up_at[record.topic] = self._clock() + RETRY_INTERVAL

    def look_up(self) -> None:
        """Read the limits of these topics, where this is allowed and not yet done."""
        now = self._clock()
        # Producers of other shards, on their threads, share this object.
        topics = [topic for topic, at in [*self._look_up_at.items()] if at <= now]
        if not topics:
            return
        self._look_up_at |= dict.fromkeys(topics, now + RETRY_INTERVAL)
        found = self._read(topics)
        if not found:
            return
        self._limits |= found
        self._look_up_at |= dict.fromkeys(found, inf)
        logger.info(
            "Batches have at most %d bytes from now on, max.message.bytes of a topic"
            " that has refused one",
            min(self._limits.values()),
            extra={"action": "batch_limit"},
        )

    def applied(self, config: KafkaConfig) -> KafkaConfig:
        """Return the properties of a client that sends no larger batches."""
        size = int(config.get("batch.size", _DEFAULT))
        smallest = min(self._limits.values(), default=size)
        return config | {"batch.size": smallest} if smallest < size else config

    def fitting(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return the records before the first that is too large for its topic."""
        if not (limits := self._limits):
            return records
        for count, record in enumerate(records):
            limit = limits.get(record.topic)
            if limit is not None and size_of([record]) > limit:
                return records[:count]
        return records

    def _read(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the limits of the topics for which there is an answer."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        limits: dict[str, int] = {}
        try:
            # Without a name for it, the client would be gone before the answers come.
            admin = make(AdminClient, self._config)
            asked = admin.describe_configs(resources, request_timeout=LOOK_UP_TIMEOUT)
        except (KafkaException, KafkaUnavailable) as error:
            logger.debug("Cannot read how large batches may be: %s", error)
            return limits
        for resource, future in asked.items():
            try:
                answer = answer_of(future, LOOK_UP_TIMEOUT)
            except KafkaException as error:
                logger.debug(
                    "Cannot read how large batches for %s may be: %s",
                    resource.name,
                    error,
                )
            else:
                limits[resource.name] = int(answer["max.message.bytes"].value)
        return limits
