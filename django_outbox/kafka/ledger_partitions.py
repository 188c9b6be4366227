"""Reads the partitions of the ledger topic: one for each shard, or more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as DriverError

from ..exceptions import KafkaUnavailable
from ..settings.options import OutboxSettings
from .client_errors import ClientErrors
from .clients import make, serve
from .config import KafkaConfig, admin_config, ledger_consumer_config
from .conversion import headers
from .ledger_topic import Entry, LedgerTail, tail_of
from .partitions import first_and_end
from .topics import ensure_topic, ledger_topic

_FIRST_STEP: Final = 8
"""Offsets to go back from the end at first: the last ledger is followed by its commit
marker, and by the records of aborted transactions."""

_POLL_TIMEOUT: Final = 0.1


class LedgerPartitions:
    """
    The ledger topic of one origin.

    Args:
        options: the settings of the outbox.
        origin: the source cluster of the records.
        client_id: the properties that name the clients.
    """

    def __init__(
        self, options: OutboxSettings, origin: int, client_id: KafkaConfig
    ) -> None:
        self.count = 1
        """As many as there ever were shards, at least; known after `ensure`."""
        self._topic = ledger_topic(options, origin)
        self.name = self._topic.name
        self._may_create = options.CREATE_LEADER_TOPIC
        self._admin_config = admin_config(options) | client_id
        self._config = ledger_consumer_config(options) | client_id
        self._timeout = 2 * options.DELIVERY_TIMEOUT

    def ensure(self) -> None:
        """
        Create the topic, or partitions that it lacks.

        Raises:
            TopicMissing: an administrator must act; the text has the command line.
            KafkaUnavailable: call again later.
        """
        self.count = ensure_topic(
            self._admin_config, self._topic, may_create=self._may_create
        )

    def tail(self, shard: int) -> LedgerTail:
        """
        Read the last committed ledger of a shard, and what follows it.

        Raises:
            KafkaUnavailable: the partition could not be read to its end.
            KafkaError: a later version wrote it.
        """
        errors = ClientErrors(
            "ledger reader", action="read_ledger", config=self._config
        )
        client_config: KafkaConfig = {**self._config, **errors.callbacks}
        consumer = make(Consumer, client_config)
        deadline = time.monotonic() + self._timeout
        try:
            return self._read(consumer, shard, deadline)
        except KafkaException as error:
            serve(consumer)
            raise errors.unavailable("Cannot read the ledger", error) from error
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, shard: int, deadline: float) -> LedgerTail:
        partition = TopicPartition(self.name, shard)
        low, high = first_and_end(consumer, partition, timeout=self._timeout)
        step = _FIRST_STEP
        while high > low:
            start = max(low, high - step)
            consumer.assign([TopicPartition(self.name, shard, start)])
            entries = _to_the_end(consumer, deadline)
            tail = tail_of(entries, topic=self.name, shard=shard)
            if tail.ledger is not None or start == low:
                return tail
            step *= 8
        return LedgerTail(None)


def _to_the_end(consumer: Consumer, deadline: float) -> Sequence[Entry]:
    """Read committed messages up to the end of the partition."""
    entries: list[Entry] = []
    while time.monotonic() < deadline:
        message = consumer.poll(_POLL_TIMEOUT)
        if message is None:
            continue
        error = message.error()
        if error is None:
            entries.append(_entry(message))
        elif error.code() == DriverError._PARTITION_EOF:
            return entries
        elif not error.retriable():
            raise KafkaException(error)
    raise KafkaUnavailable("The ledger could not be read to its end in time.")


def _entry(message: Message) -> Entry:
    offset = message.offset()
    assert offset is not None, "a message that was read has an offset"
    return Entry.of(offset, message.key(), headers(message), message.value())
