"""
One Kafka with transactions to try a scenario on: in memory, or a real one.

What the relay does goes through the adapter that `transactions()` gives; two
of them with the same settings share a `transactional.id`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from confluent_kafka import Producer

from django_outbox.kafka.transactions import KafkaTransactions
from django_outbox.message.record import Record
from django_outbox.relay.ledger.ports import Transactions
from django_outbox.settings.options import OutboxSettings
from tests.fakes.producer import InMemoryLog, InMemoryTopic, Queued, named
from tests.fakes.transactions import InMemoryTransactions
from tests.fakes.transactor import Transactor
from tests.services import Topics

from .groups import Group, KafkaGroup, MemoryGroup

Fields = Sequence[tuple[str, str]]
"""Headers."""


class MemoryTransactions:
    """The fake."""

    def __init__(self) -> None:
        self.log = InMemoryLog(has_auto_create=False)
        self._transactor = Transactor()
        self._count = 0
        self.log.create(named(OutboxSettings()).ledger_topic)

    def create(self, *, max_message_bytes: int = 1_048_588) -> str:
        self._count += 1
        topic = InMemoryTopic(max_message_bytes=max_message_bytes)
        return self.log.create(f"topic-{self._count}", topic)

    def transactions(
        self, *, shard: int = 0, origin: int = 0, **options: Any
    ) -> Transactions:
        return InMemoryTransactions(
            self.log,
            self._transactor,
            OutboxSettings(**options),
            shard=shard,
            origin=origin,
        )

    def forge(self, headers: Fields, value: bytes | None, *, key: str = "0") -> None:
        """Write into the ledger topic, as anybody who may."""
        record = Record.identified(0, "")._replace(
            topic=named(OutboxSettings()).ledger_topic, key=key, value=value
        )
        self.log.append(Queued(record, [*headers]), 0)

    def with_group(self) -> tuple[Group, Callable[[Any], Transactions]]:
        """Make a leader group, and what carries transactions for a member of it."""
        group = MemoryGroup()

        def transactions(member: Any) -> Transactions:
            return InMemoryTransactions(
                self.log,
                self._transactor,
                fencing_token=lambda: member.fencing_tokens.get(0),
                group=group.coordinator,
            )

        return group, transactions

    def read(
        self, topic: str, *, is_in_transaction: bool = False
    ) -> Sequence[bytes | None]:
        """Return the values that a reader of committed records sees."""
        return [message.value for message in self.log.of(topic)]

    def close(self) -> None: ...


class KafkaCluster:
    """The real one."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = {"bootstrap.servers": bootstrap_servers}
        self._topics = Topics(bootstrap_servers)
        name = f"test-{uuid4()}"
        self._names = {"LEADER_TOPIC": name, "LEADER_GROUP": name}
        self._opened: list[KafkaTransactions] = []
        self._group: KafkaGroup | None = None

    def create(self, *, max_message_bytes: int = 1_048_588) -> str:
        return self._topics.create(config={"max.message.bytes": str(max_message_bytes)})

    def transactions(
        self, *, shard: int = 0, origin: int = 0, **options: Any
    ) -> Transactions:
        given = OutboxSettings(**{**self._settings, **options})
        return self._make(given, None, shard=shard, origin=origin)

    def forge(self, headers: Fields, value: bytes | None, *, key: str = "0") -> None:
        producer = Producer(self._servers)
        topic = OutboxSettings(**self._settings).ledger_topic
        producer.produce(topic, value, key, 0, headers=[*headers])
        assert producer.flush(15.0) == 0, "the broker did not take it"

    def with_group(self) -> tuple[Group, Callable[[Any], Transactions]]:
        self._group = group = KafkaGroup(self._servers["bootstrap.servers"])

        def transactions(member: Any) -> Transactions:
            return self._make(
                group.options, lambda: member.fencing_tokens.get(0), origin=0
            )

        return group, transactions

    @property
    def _settings(self) -> dict[str, Any]:
        return {
            "KAFKA": self._servers,
            "PRODUCER_KAFKA": {"allow.auto.create.topics": False},
            "DELIVERY_TIMEOUT": 10.0,
            **self._names,
        }

    def _make(
        self,
        options: OutboxSettings,
        fencing_token: Callable[[], Any] | None,
        **of_whom: Any,
    ) -> Transactions:
        transactions = KafkaTransactions(
            options, fencing_token=fencing_token, **of_whom
        )
        self._opened.append(transactions)
        return transactions

    def read(
        self, topic: str, *, is_in_transaction: bool = False
    ) -> Sequence[bytes | None]:
        messages = self._topics.read(topic, is_in_transaction=is_in_transaction)
        return [message.value() for message in messages]

    def close(self) -> None:
        for transactions in self._opened:
            transactions.close()
        if self._group is not None:
            self._group.close()


Cluster = MemoryTransactions | KafkaCluster
