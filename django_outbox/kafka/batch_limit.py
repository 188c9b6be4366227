"""
How large a batch may be, where topics take less than librdkafka would send.

A broker refuses a batch that is larger than `max.message.bytes` of its topic, however
small its records are. A topic that has refused one is looked up, and later clients send
smaller batches. Nobody is asked before that: most topics take more than a batch has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from ..exceptions import KafkaUnavailable, RecordPoisoned
from ..relay.batch import Fault
from .clients import make
from .config import KafkaConfig

logger = logging.getLogger(__name__)

LOOK_UP_TIMEOUT: Final = 1.0
"""Seconds for one request."""

_DEFAULT: Final = 1_000_000
"""Bytes of a batch, if a project has not set `batch.size`."""


class BatchLimit:
    """
    The smallest limit of all topics that have refused a batch.

    Args:
        config: properties of an admin client.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._known: set[str] = set()
        self._asked_for: set[str] = set()
        self._bytes: int | None = None

    def refused(self, faults: Iterable[Fault]) -> None:
        """Note whose batches were refused for one of their records, or their size."""
        topics = {
            fault.record.topic
            for fault in faults
            if isinstance(fault.error, RecordPoisoned) and not fault.error.is_certain
        }
        self._asked_for |= topics - self._known

    def look_up(self) -> None:
        """Read the limits of these topics, where this is allowed; once for each."""
        topics, self._asked_for = self._asked_for, set()
        self._known |= topics
        if not topics:
            return
        try:
            found = self._read(topics)
        except (FutureTimeout, KafkaException, KafkaUnavailable) as error:
            logger.debug("Cannot read how large batches may be: %s", error)
            return
        smallest = min(found)
        if smallest < (self._bytes or _DEFAULT):
            self._bytes = smallest
            logger.info(
                "Batches have at most %d bytes from now on, max.message.bytes of a"
                " topic that has refused one",
                smallest,
                extra={"action": "batch_limit"},
            )

    def applied(self, config: KafkaConfig) -> KafkaConfig:
        """Return the properties of a client that sends no larger batches."""
        if self._bytes is None:
            return config
        size = int(config.get("batch.size", _DEFAULT))
        return config | {"batch.size": min(size, self._bytes)}

    def _read(self, topics: Iterable[str]) -> list[int]:
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        # Without a name for it, the client would be gone before the answers are there.
        admin = make(AdminClient, self._config)
        asked = admin.describe_configs(resources, request_timeout=LOOK_UP_TIMEOUT)
        answers = [future.result(LOOK_UP_TIMEOUT) for future in asked.values()]
        return [int(answer["max.message.bytes"].value) for answer in answers]
