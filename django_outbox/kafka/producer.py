"""
Sends records to Kafka, at least once: the adapter of the port `Producer`.

librdkafka batches and sends records on its own threads; `poll()` serves the
delivery reports. A record counts as delivered once its report has no error and
an offset.

Records that may be refused are sent *apart*, by a client of their own: each in its own
batch, since a broker that refuses a batch does not say which record is at fault, and
because a refusal ends a pipelined client. The two clients keep the order of a key: the
relay has no two of its records in flight while one of them is sent apart.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
import weakref
from collections.abc import Mapping
from functools import partial
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
from ..relay.ports import Report
from ..settings.options import OutboxSettings
from .client_errors import ClientErrors
from .clients import RAISED, driver_error, make
from .config import KafkaConfig, pipelined_config, producer_config, redacted
from .failures import failure, never_fits, no_offset

logger = logging.getLogger(__name__)

PURGE_TIMEOUT: Final = 1.0
"""Seconds to wait for the reports of purged records, which need no broker."""

ClientKind: TypeAlias = Literal["common", "apart"]
"""The client that sends a record."""

_APART: Final[KafkaConfig] = {"batch.num.messages": 1, "linger.ms": 0}


class KafkaProducer:
    """
    An idempotent producer; one object serves one thread.

    Clients are created at first use, so that nothing exists when a process forks.

    Args:
        options: the settings of the outbox.
        name: the process, as `client.id` shows it to operators.
    """

    def __init__(self, options: OutboxSettings, *, name: str = "") -> None:
        own = {"client.id": name} if name else {}
        self._config = producer_config(options) | own
        common = pipelined_config if options.is_pipelined else producer_config
        self._configs: Mapping[ClientKind, KafkaConfig] = {
            "common": common(options) | own,
            "apart": self._config | _APART,
        }
        self._envelope = Envelope(options)
        self._errors = _ProducerErrors(
            "producer", action="produce", config=self._config
        )
        self._clients: dict[ClientKind, Client] = {}
        self._works = False
        """Whether a record has arrived since the last poll."""
        _producers.add(self)

    def produce(
        self, record: Record, leader_id: str, settled: Report, *, alone: bool = False
    ) -> None:
        headers = self._envelope.headers(record, leader_id)
        kind: ClientKind = "apart" if alone else "common"
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
            if not len(client):
                raise never_fits() from error
            raise ProducerQueueFull from error
        except KafkaException as error:
            # Only this record was examined, so the error is certainly about it.
            raise self._failure(error.args[0], is_alone=True) from error

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
        config = self._configs[kind]
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
        settled: Report,
        kind: ClientKind,
        error: DriverError | None,
        message: Message,
    ) -> None:
        """Settle one record: librdkafka's delivery report, served by `poll()`."""
        if error is None and message.offset() is not None:
            self._works = True
            settled(record, None)
            return
        is_alone = kind == "apart"
        settled(
            record, self._failure(error, is_alone=is_alone) if error else no_offset()
        )

    def _failure(self, error: DriverError, *, is_alone: bool) -> DeliveryFailed:
        failed = failure(error, is_alone=is_alone)
        if isinstance(failed, RecordPoisoned):
            # A pipelined client breaks because of it: this is the record.
            return failed
        return self._errors.fault or failed


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
