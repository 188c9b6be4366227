"""
Sends records to Kafka, exactly once: the adapter of the port `Transactions`.

One transaction has a batch of records and their ledger. Two clients take turns, each
with a `transactional.id` of its own: when a commit returns, it is decided, but the
broker still writes the markers and refuses the next transaction of this id. librdkafka
would repeat it after 20 ms; the other client begins at once.

The first transaction of each client also has an offset of the leader topic under the
leader's group generation: the broker refuses a leader that the group has replaced
(KIP-447), which could otherwise fence its successor by opening late. In later
transactions this would be two more round trips for nothing: a successor that opens
fences both clients by their `transactional.id`.

librdkafka repeats a request to end a transaction, and the broker cannot tell a
repeated one from the next one (KIP-890 is not in librdkafka:
confluentinc/librdkafka#5423). Therefore both clients are dropped after any doubt.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from confluent_kafka import KafkaError as DriverError
from confluent_kafka import KafkaException
from confluent_kafka import Producer as Client

from ..exceptions import (
    DeliveryFailed,
    KafkaUnavailable,
    LedgerRefused,
    ProducerBroken,
)
from ..message.headers import Envelope, Headers
from ..message.record import Record
from ..relay.batch import ABANDONED, Fault
from ..relay.ledger.ports import Ledger
from ..settings.options import OutboxSettings
from . import ledger_topic as ledgers
from .client_errors import ClientErrors
from .clients import LOST, RAISED, driver_error, drop, init_transactions, make, serve
from .config import KafkaConfig, named, redacted, transactional_config
from .delivery_reports import LedgerReport, Reports
from .destinations import Destinations
from .failures import failure
from .fencing_token import FencingToken
from .ledger_partitions import LedgerPartitions
from .queueing import queue

logger = logging.getLogger(__name__)

TURNS: Final = 2
"""Clients that take turns."""


@dataclass(slots=True)
class Turn:
    """One of the clients that take turns."""

    client: Client
    is_known_leader: bool = False
    """Whether a transaction of it was committed under the leader's generation."""


class KafkaTransactions:
    """
    The transactional producer of one shard; one object serves one thread.

    `open()` creates the clients, so that nothing exists when a process forks.

    Args:
        options: the settings of the outbox.
        fencing_token: returns the current token of the leader group's member; None
            without a group (`--solo`).
        name: the process, as `client.id` shows it to operators.
        shard: the shard, which is also the partition of the ledger.
        origin: the source cluster of the records. The fencing token is always
            that of this cluster's leader.
    """

    def __init__(
        self,
        options: OutboxSettings,
        *,
        fencing_token: Callable[[], FencingToken | None] | None,
        name: str = "",
        shard: int = 0,
        origin: int,
    ) -> None:
        self._client_id = named(name)
        self._options, self._origin = options, origin
        self._configs = self._configs_of(shard, options.SHARDS)
        self._ledgers = LedgerPartitions(options, origin, self._client_id)
        self._fencing_token = fencing_token
        self._topic = self._ledgers.name
        self._shard = shard
        self._timeout = options.DELIVERY_TIMEOUT
        self._envelope = Envelope(options)
        self._turns: deque[Turn] = deque()
        """The next one first; empty while closed."""
        self._destinations: Destinations | None = None
        self._errors = ClientErrors(
            "transactional producer", action="transaction", config=self._configs[0]
        )
        # Of the current transaction:
        self._reports = Reports(0)
        self._ledger_report = LedgerReport()
        self._rejected: list[Fault] = []
        """Records that the client did not queue."""
        self._is_late = False

    def open(self) -> Ledger | None:
        self.close()
        self._ledgers.ensure()
        for config in self._configs:
            self._turns.append(Turn(self._connect(config)))
        self._destinations = Destinations(self._turns[0].client)
        # After both: a former leader can commit nothing more.
        last = self._ledgers.tail(self._shard).ledger
        if last is not None and last.shards == self._options.SHARDS:
            return last
        self._announce()
        return None

    def others(self) -> Sequence[Ledger]:
        found: list[Ledger | None] = []
        for shard in range(self._ledgers.count if self._ledgers.count > 1 else 0):
            tail = self._ledgers.tail(shard)
            if others := tail.numbers - {self._options.SHARDS}:
                for config in chain(*(self._configs_of(shard, n) for n in others)):
                    drop(self._connect(config))
                tail = self._ledgers.tail(shard)
            found.append(tail.ledger)
        return [ledger for ledger in found if ledger is not None]

    def read(self) -> Ledger | None:
        self._ledgers.ensure()
        return self._ledgers.tail(self._shard).ledger

    def send(
        self,
        records: Sequence[Record],
        leader_id: str,
        ledger: Ledger,
        *,
        patience: float,
        may_commit: Callable[[], bool],
    ) -> Sequence[Fault] | None:
        if not self._turns or (destinations := self._destinations) is None:
            raise ProducerBroken("The producer is not open.", code="_STATE")
        turn = self._turns[0]
        client = turn.client
        headers, invalid = self._check(destinations, records, leader_id)
        if invalid:
            # Nothing has begun yet.
            return invalid
        self._reports, self._ledger_report = Reports(len(records)), LedgerReport()
        self._rejected, self._is_late = [], False
        error_count = self._errors.count
        is_committed, failed = False, None
        try:
            client.begin_transaction()
            is_complete = self._carry(turn, records, headers, ledger, patience)
            # Only what breaks from here on may have the commit repeated.
            client.poll(0)
            error_count = self._errors.count
            if is_complete and may_commit():
                is_committed = True
                client.commit_transaction(self._timeout)
            else:
                client.abort_transaction(self._timeout)
            # Serve the callbacks of errors during the transaction.
            client.poll(0)
        except RAISED as error:
            failed = driver_error(error) or LOST
        if failed is not None:
            self._give_up(client, failed, is_committed=is_committed)
            is_committed = False
        if error_count != self._errors.count:
            # librdkafka may have repeated the request, which could end the next
            # transaction.
            raise ProducerBroken(
                "a connection broke during a transaction", code="_TRANSPORT"
            )
        self._turns.rotate()
        if is_committed:
            turn.is_known_leader = True
            self._errors.recovered()
            return None
        faults = self._faults(records)
        refusal = self._ledger_report.refusal
        if not faults and refusal and refusal.code not in ABANDONED:
            raise LedgerRefused(
                f"the topic {self._topic!r} refused it: {refusal} ({refusal.code})."
            )
        return faults

    def serve(self) -> None:
        for turn in self._turns:
            try:
                turn.client.poll(0)
            except RAISED as error:
                # The next transaction fails and has the clients replaced.
                logger.debug("Client unusable: %s", driver_error(error) or error)

    def close(self) -> None:
        self._destinations = None
        while self._turns:
            # The queued records belong to a transaction that will not be committed.
            drop(self._turns.popleft().client)

    def _connect(self, config: KafkaConfig) -> Client:
        """Make a client; its transactional id is then this process's."""
        logger.debug("Opening transactions with %s", redacted(config))
        client = make(Client, config | self._errors.callbacks)
        try:
            # A client that knows no broker yet would look up its coordinator only
            # after half a second.
            client.list_topics(self._topic, timeout=self._timeout)
            init_transactions(client, 2 * self._timeout)
        except KafkaException as error:
            serve(client)
            raise self._errors.unavailable(
                "Cannot start transactions", error
            ) from error
        return client

    def _configs_of(self, shard: int, shards: int) -> list[KafkaConfig]:
        """Return the properties of both clients of a shard's leader."""
        make = partial(transactional_config, self._options, shard, self._origin)
        turns = range(TURNS)
        return [make(turn=turn, shards=shards) | self._client_id for turn in turns]

    def _announce(self) -> None:
        """Let leaders of another number of shards know whom they have to fence."""
        key, headers = ledgers.announcement(self._shard, self._options.SHARDS)
        client, error_count = self._turns[0].client, self._errors.count
        try:
            client.begin_transaction()
            client.produce(self._topic, b"", key, self._shard, headers=headers)
            client.commit_transaction(self._timeout)
            client.poll(0)
        except KafkaException as error:
            what = "Cannot write to the ledger topic"
            raise self._errors.unavailable(what, error) from error
        except SystemError as error:
            raise KafkaUnavailable(LOST.str()) from error
        if error_count != self._errors.count:
            # As in `send`: a repeated request could end the next transaction.
            raise KafkaUnavailable("A connection broke during an announcement.")
        self._turns.rotate()

    def _check(
        self, destinations: Destinations, records: Sequence[Record], leader_id: str
    ) -> tuple[list[Headers], list[Fault]]:
        """Find invalid records before anything is sent; make the headers."""
        headers: list[Headers] = []
        faults: list[Fault] = []
        make, check = self._envelope.headers, destinations.check
        destinations.begin()
        for record in records:
            try:
                made = make(record, leader_id)
                check(record)
                headers.append(made)
            except DeliveryFailed as error:
                faults.append(Fault(record, error))
        return headers, faults

    def _carry(
        self,
        turn: Turn,
        records: Sequence[Record],
        headers: Sequence[Headers],
        ledger: Ledger,
        patience: float,
    ) -> bool:
        """Send records, ledger and offset; return whether all are in the log."""
        client, until = turn.client, time.monotonic() + patience
        if not self._queue_records(client, records, headers, until):
            return False
        if not self._queue_ledger(client, ledger, until):
            return False
        if self._fencing_token is not None and not turn.is_known_leader:
            if (fencing_token := self._fencing_token()) is None:
                return False
            position, group = fencing_token
            client.send_offsets_to_transaction([position], group, self._timeout)
        self._is_late = client.flush(patience) > 0
        reports = self._reports
        is_complete = not reports.left and not reports.are_refused
        return is_complete and self._ledger_report.is_acknowledged

    def _faults(self, records: Sequence[Record]) -> Sequence[Fault]:
        """
        Return the records that prevented the commit.

        When the transaction was aborted because records took too long, those are at
        fault, unless others were refused.
        """
        is_alone = len(records) == 1
        refused = self._reports.faults(
            records, lambda error: failure(error, is_alone=is_alone)
        )
        own = [fault for fault in refused if fault.error.code not in ABANDONED]
        return [*self._rejected, *own] or (refused if self._is_late else [])

    def _queue_records(
        self,
        client: Client,
        records: Sequence[Record],
        headers: Sequence[Headers],
        until: float,
    ) -> bool:
        """Queue the records; return whether the client accepted all of them."""
        produce, report = client.produce, self._reports.note
        for record, own in zip(records, headers, strict=True):
            # -1: librdkafka picks the partition by the key's hash.
            partition = -1 if record.partition is None else record.partition
            message = (record.topic, record.value, record.key, partition, report)
            try:
                produce(*message, headers=own)
            except BufferError:
                pass
            except KafkaException as error:
                failed = failure(error.args[0], is_alone=True)
                self._rejected.append(Fault(record, failed))
                return False
            else:
                continue
            try:
                self._is_late = not queue(client, message, own, until=until)
            except DeliveryFailed as error:
                self._rejected.append(Fault(record, error))
                return False
            if self._is_late:
                return False
        return True

    def _queue_ledger(self, client: Client, ledger: Ledger, until: float) -> bool:
        """Queue the ledger; return whether the client accepted it."""
        headers, value = ledgers.encode(ledger, shards=self._options.SHARDS)
        shard, report = self._shard, self._ledger_report.note
        message = (self._topic, value, str(shard), shard, report)
        try:
            self._is_late = not queue(client, message, headers, until=until)
        except DeliveryFailed as error:
            self._ledger_report.refusal = error
            return False
        return not self._is_late

    def _give_up(
        self, client: Client, error: DriverError, *, is_committed: bool
    ) -> None:
        """Abort after an error, if the outcome is certain then."""
        is_open = is_committed and not error.txn_requires_abort()
        if error.fatal() or (is_open and error is not LOST):
            raise ProducerBroken(error.str(), code=error.name())
        logger.debug("Aborting the transaction: %s", error.str())
        try:
            client.abort_transaction(self._timeout)
            # Serve the reports of the records that it dropped.
            client.poll(0)
        except RAISED as failed:
            error = driver_error(failed) or LOST
            raise ProducerBroken(error.str(), code=error.name()) from None
        if error is LOST:
            raise ProducerBroken(error.str(), code=error.name())
