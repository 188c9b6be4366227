"""
A Kafka in memory, behind the ledger relay's port `Transactions`.

It writes to the same `InMemoryLog` as `InMemoryProducer`, in which only committed
records appear, and passes the scenarios that the real client passes
(`tests/contracts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from django_outbox.exceptions import DeliveryFailed, KafkaUnavailable, ProducerBroken
from django_outbox.kafka import ledger_topic as ledgers
from django_outbox.message.headers import Envelope, Headers
from django_outbox.message.record import Record
from django_outbox.relay.batch import Fault
from django_outbox.relay.ledger.ports import Ledger
from django_outbox.settings.options import OutboxSettings

from .coordinator import Coordinator
from .membership import FakeFencingToken
from .producer import InMemoryLog, Queued, named, partition_of, refusal
from .transactor import Transactor


class InMemoryTransactions:
    """
    The transactional producer of one shard; one object serves one thread.

    Args:
        transactor: shared by all that may fence each other.
        options: the settings of the outbox.
        fencing_token: returns the current token of the leader group's member.
        group: accepts or refuses it; None if there is no group.
        origin: the source cluster of the records.
    """

    def __init__(
        self,
        log: InMemoryLog,
        transactor: Transactor,
        options: OutboxSettings | None = None,
        *,
        fencing_token: Callable[[], FakeFencingToken | None] = lambda: None,
        group: Coordinator | None = None,
        shard: int = 0,
        origin: int = 0,
    ) -> None:
        self.refused: dict[str, DeliveryFailed] = {}
        """By message id, why the log refuses a record. An acknowledgement
        without an offset is such a refusal: `kafka.failures.no_offset()`."""
        self.unanswered: bool | None = None
        """Whether the next commit takes effect; its answer is lost."""
        self._log = log
        self._transactor = transactor
        self._fencing_token = fencing_token
        self._group = group
        self._shard = shard
        options = named(options or OutboxSettings())
        self._group_id, self._shards = options.leader_group_of(origin), options.SHARDS
        self._id = self._id_of(shard, self._shards)
        self._topic = options.ledger_topic_of(origin)
        self._envelope = Envelope(options)
        self._epoch: int | None = None

    def open(self) -> Ledger | None:
        self.close()
        if self._log.is_down:
            raise KafkaUnavailable
        self._epoch = self._transactor.initialise(self._id)
        last = self.read()
        if last is not None and last.shards == self._shards:
            return last
        key, headers = ledgers.announcement(self._shard, self._shards)
        self._add_own(key, headers, b"")
        self._transactor.end(self._id, self._epoch, is_commit=True)
        return None

    def others(self) -> Sequence[Ledger]:
        found: list[Ledger] = []
        used = [message.partition for message in self._log.of(self._topic)]
        partitions = max(self._shards, 1 + max(used, default=0))
        for shard in range(partitions) if partitions > 1 else ():
            tail = self._tail(shard)
            for shards in tail.numbers - {self._shards}:
                self._transactor.initialise(self._id_of(shard, shards))
            if tail.ledger is not None:
                found.append(tail.ledger)
        return found

    def read(self) -> Ledger | None:
        if self._log.is_down:
            raise KafkaUnavailable
        return self._tail(self._shard).ledger

    def _id_of(self, shard: int, shards: int) -> str:
        name = f"{self._group_id}.{shard}"
        return name if shards == 1 else f"{name}-of-{shards}"

    def _tail(self, shard: int) -> ledgers.LedgerTail:
        entries = [
            ledgers.Entry.of(m.offset, m.key, m.headers, m.value)
            for m in self._log.of(self._topic)
            if m.partition == shard
        ]
        return ledgers.tail_of(entries, topic=self._topic, shard=shard)

    def send(
        self,
        records: Sequence[Record],
        leader_id: str,
        ledger: Ledger,
        *,
        patience: float,
        may_commit: Callable[[], bool],
    ) -> Sequence[Fault] | None:
        if self._epoch is None:
            raise ProducerBroken("The producer is not open.", code="_STATE")
        if self._log.is_down:
            raise ProducerBroken("No broker answers.", code="_TRANSPORT")
        headers, faults = self._check(records, leader_id)
        if faults:
            return faults
        for record, own in zip(records, headers, strict=True):
            self._add(record, own, partition_of(record, self._log.topic(record.topic)))
        self._add_ledger(ledger)
        faults = self._refusals(records, headers)
        if faults or not self._is_member() or not may_commit():
            self._transactor.end(self._id, self._epoch, is_commit=False)
            return faults
        self._commit()
        return None

    def serve(self) -> None:
        """Do nothing: there are no callbacks."""

    def close(self) -> None:
        self._epoch = None

    def _check(
        self, records: Sequence[Record], leader_id: str
    ) -> tuple[list[Headers], list[Fault]]:
        """Find invalid records before anything is sent."""
        headers: list[Headers] = []
        faults: list[Fault] = []
        for record in records:
            topic = self._log.topic(record.topic)
            try:
                headers.append(self._envelope.headers(record, leader_id))
            except DeliveryFailed as error:
                faults.append(Fault(record, error))
                continue
            if topic is None:
                faults.append(Fault(record, refusal("UNKNOWN_TOPIC_OR_PART")))
            elif partition_of(record, topic) >= topic.partitions:
                faults.append(Fault(record, refusal("_UNKNOWN_PARTITION")))
        return headers, faults

    def _refusals(
        self, records: Sequence[Record], headers: Sequence[Headers]
    ) -> list[Fault]:
        """Find the records that the log refuses; a too large batch fails as a whole."""
        faults = [
            Fault(record, self.refused[record.message_id])
            for record in records
            if record.message_id in self.refused
        ]
        sizes: Counter[tuple[str, int]] = Counter()
        partitions = []
        for record, own in zip(records, headers, strict=True):
            at = record.topic, partition_of(record, self._log.topic(record.topic))
            partitions.append(at)
            sizes[at] += Queued(record, own).size
        too_large = refusal("MSG_SIZE_TOO_LARGE", is_certain=len(records) == 1)
        for record, at in zip(records, partitions, strict=True):
            topic = self._log.topic(record.topic)
            if topic is not None and sizes[at] > topic.max_message_bytes:
                faults.append(Fault(record, too_large))
        return faults

    def _is_member(self) -> bool:
        """Whether the group knows this leader in its current generation."""
        if self._group is None:
            return True
        fencing_token = self._fencing_token()
        return fencing_token is not None and self._group.knows(*fencing_token)

    def _add(self, record: Record, headers: Headers, partition: int) -> None:
        assert self._epoch is not None, "open"
        queued = Queued(record, headers)
        self._transactor.add(
            self._id, self._epoch, lambda: self._log.append(queued, partition)
        )

    def _add_ledger(self, ledger: Ledger) -> None:
        headers, value = ledgers.encode(ledger, shards=self._shards)
        self._add_own(str(self._shard), headers, value)

    def _add_own(self, key: str, headers: Headers, value: bytes) -> None:
        record = Record.identified(0, "")._replace(
            topic=self._topic, key=key, value=value
        )
        self._add(record, headers, self._shard)

    def _commit(self) -> None:
        assert self._epoch is not None, "open"
        is_lost, self.unanswered = self.unanswered, None
        if is_lost is not False:
            self._transactor.end(self._id, self._epoch, is_commit=True)
        if is_lost is not None:
            raise ProducerBroken("Nobody has answered the commit.", code="_TIMED_OUT")
