"""
Sends batches to Kafka, at least once: the adapter of the port `Producer`.

librdkafka batches and sends records on its own threads; `poll()` serves the
delivery reports. A record counts as delivered once its report has no error and
an offset.

Records that may be refused are sent *apart*, by a client of their own: each in its own
request, since a broker that refuses a batch does not say which record is at fault, and
because a refusal ends the pipelined client. The two clients keep the order of a key:
the relay has no two of its records in flight while one of them is sent apart.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from confluent_kafka import KafkaError as DriverError
from confluent_kafka import KafkaException
from confluent_kafka import Producer as Client

from ..exceptions import (
    DeliveryFailed,
    KafkaUnavailable,
    ProducerBroken,
    RecordPoisoned,
)
from ..message.headers import Envelope
from ..relay.batch import NO_CLIENT, Accepted, Batch, Fault
from ..relay.ports import Outcome
from ..settings.options import OutboxSettings
from .batch_limit import BatchLimit
from .client_errors import ClientErrors
from .clients import RAISED, driver_error, make
from .config import (
    KafkaConfig,
    admin_config,
    named,
    pipelined_config,
    producer_config,
    redacted,
)
from .delivery_reports import Reports
from .failures import failure, never_fits, too_large

logger = logging.getLogger(__name__)

PURGE_TIMEOUT: Final = 1.0
"""Seconds to wait for the reports of purged records, which need no broker."""

LOOK_UP_TIMEOUT: Final = 1.0
"""Seconds to wait for a connection, and the number of a topic's partitions."""

ClientKind: TypeAlias = Literal["common", "apart"]
"""The client that sends a batch."""

_APART: Final[KafkaConfig] = {"batch.num.messages": 1, "linger.ms": 0}


class _Sent(NamedTuple):
    """A batch without an outcome, and its reports."""

    batch: Batch
    reports: Reports


class KafkaProducer:
    """
    An idempotent producer; one object serves one thread.

    Clients are created at first use, so that nothing exists when a process forks.

    Args:
        options: the settings of the outbox.
        name: the process, as `client.id` shows it to operators.
        limit: what one producer learns about the size of batches, for the next one.
    """

    def __init__(
        self,
        options: OutboxSettings,
        *,
        name: str = "",
        limit: BatchLimit | None = None,
    ) -> None:
        own = named(name)
        common = pipelined_config if options.is_pipelined else producer_config
        self._configs: Mapping[ClientKind, KafkaConfig] = {
            "common": common(options) | own,
            "apart": producer_config(options) | own | _APART,
        }
        self._limit = limit or BatchLimit(admin_config(options))
        self._envelope = Envelope(options)
        self._errors = _ProducerErrors(
            "producer", action="produce", config=self._configs["apart"]
        )
        self._clients: dict[ClientKind, Client] = {}
        self._sent: list[_Sent] = []
        self._delivered = 0
        """Records of ended batches that are in the log."""
        self._places: dict[str, set[int]] = {}
        """By topic, the partitions that have acknowledged a record."""
        self._partitions: dict[str, int] = {}
        """By topic, how many it has."""
        self.proven_topics: set[str] = set()
        """Topics of which each partition has acknowledged a record; it grows."""
        _producers.add(self)

    @property
    def delivered(self) -> int:
        return self._delivered + sum([sent.reports.delivered for sent in self._sent])

    def connect(self, topic: str) -> Self:
        """
        Wait for a connection and this topic's metadata, a second at most.

        librdkafka asks for its producer id with the first record, and when it is not
        connected by then, half a second later.
        """
        self._limit.look_up()
        with suppress(DeliveryFailed):
            self._client("common")
            self._count(topic)
        return self

    def produce(self, batch: Batch, leader_id: str) -> Accepted:
        try:
            client = self._client("apart" if batch.is_apart else "common")
        except DeliveryFailed as error:
            return Accepted(0, error)
        reports = Reports(0, batch.proven)
        accepted = self._queue(client, batch, leader_id, reports)
        if accepted.queued:
            reports.expect(accepted.queued)
            self._sent.append(_Sent(batch, reports))
        return accepted

    def _queue(
        self, client: Client, batch: Batch, leader_id: str, reports: Reports
    ) -> Accepted:
        """Queue records until one is not accepted."""
        produce, make_headers = client.produce, self._envelope.headers
        report = reports.note_place if batch.proves_keys else reports.note
        records = batch.records
        if not batch.is_apart:
            records = self._limit.fitting(records)
        count = 0
        try:
            for record in records:
                headers = make_headers(record, leader_id)
                # -1: librdkafka picks the partition by the key's hash.
                partition = -1 if record[6] is None else record[6]
                produce(
                    record[1], record[3], record[2], partition, report, headers=headers
                )
                count += 1
        except BufferError:
            return Accepted(count, None if len(client) else never_fits())
        except KafkaException as error:
            # Only this record was examined, so the error is certainly about it.
            return Accepted(count, self._failure(error.args[0], is_alone=True))
        except DeliveryFailed as error:
            return Accepted(count, error)
        return Accepted(count, None if count == len(batch.records) else too_large())

    def poll(self, timeout: float) -> Sequence[Outcome]:
        clients = list(self._clients.values())
        try:
            served = sum([client.poll(0) for client in clients])
            if not served and timeout and clients:
                # Wait for the client with the most records in flight.
                max(clients, key=len).poll(timeout)
        except RAISED as error:
            self._errors.broke(error)
        if self._errors.fault and self._sent:
            # A client with a fatal error reports nothing more by itself.
            return self.purge()
        return self._ended()

    def purge(self) -> Sequence[Outcome]:
        for client in self._clients.values():
            client.purge()
            end = time.monotonic() + PURGE_TIMEOUT
            while len(client) and (left := end - time.monotonic()) > 0:
                try:
                    client.poll(left)
                except RAISED as error:
                    self._errors.broke(error)
        ended = self._ended()
        silent, self._sent = self._sent, []
        unknown = DeliveryFailed("no report", code="_PURGE_INFLIGHT")
        return [
            *ended,
            *[
                (sent.batch, [Fault(record, unknown) for record in sent.batch.records])
                for sent in silent
            ],
        ]

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

    def _client(self, kind: ClientKind) -> Client:
        """Return the client of one kind; raise why there cannot be one."""
        if (client := self._clients.get(kind)) is not None:
            return client
        if self._errors.fault:
            raise self._errors.fault
        config = self._limit.applied(self._configs[kind])
        logger.debug("Producing with %s", redacted(config))
        try:
            client = make(Client, config | self._errors.callbacks)
        except KafkaUnavailable as error:
            # No record is at fault: perhaps a file is being replaced.
            raise ProducerBroken(str(error), code=NO_CLIENT) from error
        self._clients[kind] = client
        return client

    def _ended(self) -> list[Outcome]:
        """Take out the batches of which each record has a report."""
        if all(sent.reports.left for sent in self._sent):
            return []
        ended = [sent for sent in self._sent if not sent.reports.left]
        self._sent = [sent for sent in self._sent if sent.reports.left]
        self._delivered += sum([sent.reports.delivered for sent in ended])
        return [(batch, self._outcome(batch, reports)) for batch, reports in ended]

    def _outcome(self, batch: Batch, reports: Reports) -> Sequence[Fault]:
        if self._errors.is_failing and not reports.are_refused:
            self._errors.recovered()
        if reports.places:
            self._prove(reports)
        faults = reports.faults(
            batch.records,
            lambda error: self._failure(error, is_alone=batch.is_apart),
        )
        self._limit.refused(faults)
        return faults

    def _prove(self, reports: Reports) -> None:
        """Note which topics have acknowledged a record on each partition."""
        for topic, partition in reports.places:
            if topic is not None and partition is not None:
                self._places.setdefault(topic, set()).add(partition)
        for topic in {topic for topic, _ in reports.places if topic}:
            if len(self._places[topic]) >= self._count(topic):
                self.proven_topics.add(topic)

    def _count(self, topic: str) -> float:
        """Return how many partitions a topic has; infinity if that is unknown."""
        if topic not in self._partitions:
            try:
                found = self._clients["common"].list_topics(
                    topic, timeout=LOOK_UP_TIMEOUT
                )
            except KafkaException:
                return float("inf")
            if not (count := len(found.topics[topic].partitions)):
                # It is being created.
                return float("inf")
            self._partitions[topic] = count
        return self._partitions[topic]

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
