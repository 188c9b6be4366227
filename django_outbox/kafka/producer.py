"""
Kafka behind the relay's port `Producer`: the last step of a record's way.

The relay hands over marked records; librdkafka batches and sends them on its
own threads; the delivery reports come back inside `poll()`. A record counts
as delivered when its report has no error and an offset, and never before.

Two clients: almost all records go through the first. One that must travel
alone goes through the second, which puts every record in a batch of its own,
since a broker that refuses a batch does not say which record it minds.
"""

from __future__ import annotations

import ctypes
import logging
import os
import weakref
from functools import partial
from typing import Final

from confluent_kafka import KafkaError as DriverError
from confluent_kafka import KafkaException, Message
from confluent_kafka import Producer as Client

from ..exceptions import DeliveryFailed, ProducerBroken, ProducerQueueFull
from ..options import OutboxSettings
from ..records import Record
from ..relay.ports import Settled
from .config import KafkaConfig, producer_config, redacted
from .envelope import Envelope
from .failures import failure, no_offset
from .logs import CLIENT_LOG
from .trouble import Trouble

logger = logging.getLogger(__name__)

PURGE_TIMEOUT: Final = 1.0
"""Seconds for the reports of purged records, which need no broker."""

_ALONE: Final[KafkaConfig] = {"batch.num.messages": 1, "linger.ms": 0}


class KafkaProducer:
    """
    An idempotent producer; one object serves one thread.

    Clients are made at first use, so that nothing exists when a process forks.

    Args:
        options: the settings of the outbox.
        name: the process, as `client.id` shows it to operators.
    """

    def __init__(self, options: OutboxSettings, *, name: str = "") -> None:
        self._config = producer_config(options)
        if name:
            self._config["client.id"] = name
        self._envelope = Envelope(options)
        self._trouble = _Trouble("producer", action="produce")
        self._clients: dict[bool, Client] = {}
        _producers.add(self)

    def produce(
        self, record: Record, leader_id: str, settled: Settled, *, alone: bool = False
    ) -> None:
        headers = self._envelope.headers(record, leader_id)
        client = self._clients.get(alone)
        if client is None:
            client = self._connect(alone=alone)
        # -1: librdkafka picks the partition by the key's hash.
        partition = -1 if record.partition is None else record.partition
        try:
            client.produce(
                record.topic,
                record.value,
                record.key,
                partition,
                partial(self._report, record, settled, alone),
                headers=headers,
            )
        except BufferError as error:
            raise ProducerQueueFull from error
        except KafkaException as error:
            # This record alone was looked at: what it is said of is certain.
            raise self._failure(error.args[0], is_alone=True) from error

    def poll(self, timeout: float) -> int:
        return sum(
            client.poll(timeout / len(self._clients))
            for client in self._clients.values()
        )

    def purge(self) -> None:
        for client in self._clients.values():
            client.purge()
            while len(client) and client.poll(PURGE_TIMEOUT):
                pass

    def close(self) -> None:
        self._clients.clear()

    def abandon(self) -> None:
        """
        Leave a parent process's clients alone, for ever; called in its child.

        Their threads are not in this process: to use one hangs, and to destroy
        one, as the interpreter does at exit, crashes. So each keeps a reference.
        """
        for client in self._clients.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
        self._clients.clear()

    def _connect(self, *, alone: bool) -> Client:
        if self._trouble.fault:
            raise self._trouble.fault
        config = self._config | (_ALONE if alone else {})
        logger.debug("Producing with %s", redacted(config))
        trouble = self._trouble
        client = Client(config | {"error_cb": trouble.note, "logger": CLIENT_LOG})
        self._clients[alone] = client
        return client

    def _report(
        self,
        record: Record,
        settled: Settled,
        alone: bool,
        error: DriverError | None,
        message: Message,
    ) -> None:
        """Settle one record: librdkafka's delivery report, served by `poll()`."""
        if error is None and message.offset() is not None:
            if self._trouble.told:
                self._trouble.end()
            settled(record, None)
        elif error is None:
            settled(record, no_offset())
        else:
            settled(record, self._failure(error, is_alone=alone))

    def _failure(self, error: DriverError, *, is_alone: bool) -> DeliveryFailed:
        return self._trouble.fault or failure(error, is_alone=is_alone)


class _Trouble(Trouble):
    """Keeps what makes the client useless, too."""

    fault: ProducerBroken | None = None

    def note(self, error: DriverError) -> None:
        if error.fatal():
            self.fault = ProducerBroken(error.str(), code=error.name())
        super().note(error)


_producers: Final[weakref.WeakSet[KafkaProducer]] = weakref.WeakSet()


def _abandon_all() -> None:
    for producer in _producers:
        producer.abandon()


os.register_at_fork(after_in_child=_abandon_all)
