"""
Sends records to Kafka, at least once: the adapter of the port `Producer`.

librdkafka batches and sends records on its own threads; `poll()` serves the
delivery reports. A record counts as delivered once its report has no error and
an offset.

There are three clients, each created at first use. *Quick* sends at once. *Bulk*
waits some milliseconds for more records: with many records in flight this makes
large batches, which cost the broker and this process much less. Only one record
of each key is in flight then, so a hot key never waits. *Alone* puts every
record into its own batch, since a broker that refuses a batch does not say which
record is at fault. The three keep the order of a key: its next record is
produced when the previous one is settled, and a record that failed is sent by the
same client again, whose idempotence rejects a late copy.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
import weakref
from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Final, Literal, TypeAlias

from confluent_kafka import KafkaError as DriverError
from confluent_kafka import KafkaException, Message
from confluent_kafka import Producer as Client

from ..exceptions import (
    DeliveryFailed,
    KafkaUnavailable,
    ProducerBroken,
    ProducerQueueFull,
    RecordPoisoned,
)
from ..message.headers import Envelope
from ..message.record import Record
from ..relay.ports import Settled
from ..settings.options import OutboxSettings
from .client_errors import ClientErrors
from .clients import RAISED, driver_error, make
from .config import KafkaConfig, producer_config, redacted
from .failures import failure, no_offset

logger = logging.getLogger(__name__)

PURGE_TIMEOUT: Final = 1.0
"""Seconds to wait for the reports of purged records, which need no broker."""

BULK_THRESHOLD: Final = 32
"""Records in flight from which on records are sent by the bulk client."""


ClientKind: TypeAlias = Literal["quick", "bulk", "alone"]
"""The client that sends a record."""

_CLIENT_PROPERTIES: Final[Mapping[ClientKind, KafkaConfig]] = {
    "quick": {},
    "bulk": {"linger.ms": 4},
    "alone": {"batch.num.messages": 1, "linger.ms": 0},
}
"""Properties of each kind of client, over the common ones."""


class KafkaProducer:
    """
    An idempotent producer; one object serves one thread.

    Clients are created at first use, so that nothing exists when a process forks.

    Args:
        options: the settings of the outbox.
        name: the process, as `client.id` shows it to operators.
    """

    def __init__(self, options: OutboxSettings, *, name: str = "") -> None:
        self._config = producer_config(options)
        if name:
            self._config["client.id"] = name
        self._envelope = Envelope(options)
        self._errors = _ProducerErrors(
            "producer", action="produce", config=self._config
        )
        self._clients: dict[ClientKind, Client] = {}
        self._in_flight = 0
        self._works = False
        """Whether a record has arrived since the last poll."""
        self._failed_by: dict[str, ClientKind] = {}
        """The kind of client by which a record failed, by message id."""
        # A project that sets linger.ms has chosen for all records.
        chosen = {**options.KAFKA, **options.PRODUCER_KAFKA}
        self._bulk_threshold = inf if "linger.ms" in chosen else BULK_THRESHOLD
        _producers.add(self)

    def produce(
        self, record: Record, leader_id: str, settled: Settled, *, alone: bool = False
    ) -> None:
        headers = self._envelope.headers(record, leader_id)
        kind: ClientKind = (
            "bulk" if self._in_flight >= self._bulk_threshold else "quick"
        )
        if self._failed_by:
            kind = self._failed_by.pop(record.message_id, kind)
        if alone:
            kind = "alone"
        client = self._clients.get(kind)
        if client is None:
            client = self._connect(kind)
        # -1: librdkafka picks the partition by the key's hash.
        partition = -1 if record.partition is None else record.partition
        try:
            client.produce(
                record.topic,
                record.value,
                record.key,
                partition,
                partial(self._report, record, settled, kind),
                headers=headers,
            )
        except BufferError as error:
            raise ProducerQueueFull from error
        except KafkaException as error:
            # Only this record was examined, so the error is certainly about it.
            raise self._failure(error.args[0], is_alone=True) from error
        self._in_flight += 1

    def poll(self, timeout: float) -> int:
        clients = list(self._clients.values())
        try:
            served = sum([client.poll(0) for client in clients])
            if not served and timeout and clients:
                # Wait for the client with the most records in flight.
                served = max(clients, key=len).poll(timeout)
        except RAISED as error:
            self._errors.broke(error)
            served = 1
        if self._works:
            self._works = False
            if self._errors.is_failing:
                self._errors.recovered()
        self._in_flight = sum(map(len, clients))
        return served

    def purge(self) -> None:
        for client in self._clients.values():
            client.purge()
            end = time.monotonic() + PURGE_TIMEOUT
            while len(client) and (left := end - time.monotonic()) > 0:
                try:
                    client.poll(left)
                except RAISED as error:
                    self._errors.broke(error)

    def close(self) -> None:
        self._clients.clear()
        self._failed_by.clear()
        self._in_flight = 0

    def abandon(self) -> None:
        """
        Drop the parent process's clients without destroying them, in a child.

        Their threads do not exist in this process: using a client hangs, and
        destroying it, as the interpreter does at exit, crashes. Therefore each
        gets a reference that is never released.
        """
        for client in self._clients.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
        self._clients.clear()

    def _connect(self, kind: ClientKind) -> Client:
        if self._errors.fault:
            raise self._errors.fault
        config = self._config | _CLIENT_PROPERTIES[kind]
        logger.debug("Producing with %s", redacted(config))
        try:
            client = make(Client, config | self._errors.callbacks)
        except KafkaUnavailable as error:
            raise DeliveryFailed(str(error), code="NO_CLIENT") from error
        self._clients[kind] = client
        return client

    def _report(
        self,
        record: Record,
        settled: Settled,
        kind: ClientKind,
        error: DriverError | None,
        message: Message,
    ) -> None:
        """Settle one record: librdkafka's delivery report, served by `poll()`."""
        if error is None and message.offset() is not None:
            self._works = True
            settled(record, None)
            return
        is_alone = kind == "alone"
        failed = self._failure(error, is_alone=is_alone) if error else no_offset()
        if not isinstance(failed, RecordPoisoned):
            # That client may still send a late copy of it.
            self._failed_by[record.message_id] = kind
        settled(record, failed)

    def _failure(self, error: DriverError, *, is_alone: bool) -> DeliveryFailed:
        return self._errors.fault or failure(error, is_alone=is_alone)


class _ProducerErrors(ClientErrors):
    """Also keeps the fatal error after which the clients cannot be used."""

    fault: ProducerBroken | None = None

    def note(self, error: DriverError) -> None:
        if error.fatal():
            self.fault = ProducerBroken(error.str(), code=error.name())
        super().note(error)

    def broke(self, error: Exception) -> None:
        """Take the fatal error that the driver raises while serving reports."""
        cause = driver_error(error)
        if cause is not None:
            self.note(cause)
        self.fault = self.fault or ProducerBroken("The Kafka client had a fatal error.")


_producers: Final[weakref.WeakSet[KafkaProducer]] = weakref.WeakSet()


def _abandon_all() -> None:
    for producer in _producers:
        producer.abandon()


os.register_at_fork(after_in_child=_abandon_all)
