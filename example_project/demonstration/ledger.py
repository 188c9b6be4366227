"""
The two sides of the promise: committed orders, and messages in Kafka.

`Orders` places orders at a steady rate and rolls back every tenth transaction.
Billing consumes them from Kafka, charges them and publishes the new balance.
`compare()` reads the topics to their ends and counts the violations.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

from billing.accounts import ACCOUNTS
from billing.models import Account, Charge
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from django.db import connection, transaction
from django.db.models import Sum
from shop import orders

from django_outbox.devstack.waiting import StallDetector, Stalled
from django_outbox.models import OutboxRecord

ROLLED_BACK = 10
"""One in this many transactions is rolled back after stashing its messages."""

CUSTOMERS = 20

AMOUNT = Decimal("4.50")


class Orders:
    """Places orders on a thread between `start()` and `finish()`."""

    def __init__(self, *, rate: float) -> None:
        self.placed: list[int] = []
        """Ids of committed orders."""
        self.rolled_back: list[int] = []
        """Ids of orders whose transaction was rolled back."""
        self._pause = 1 / rate
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._place, daemon=True)

    def start(self) -> None:
        """Start placing orders."""
        self._thread.start()

    def finish(self) -> None:
        """Stop placing orders; may be called at any time."""
        self._end.set()
        if self._thread.ident:
            self._thread.join()

    def _place(self) -> None:
        choice = random.Random(1)  # noqa: S311 - picks customers, keeps no secret
        due = time.monotonic()
        while not self._end.is_set():
            self._place_one(choice)
            due += self._pause
            self._end.wait(max(0.0, due - time.monotonic()))
        connection.close()

    def _place_one(self, choice: random.Random) -> None:
        with transaction.atomic():
            order = orders.place(
                customer=f"customer-{choice.randrange(CUSTOMERS)}",
                sku="TEA-100",
                quantity=1,
                amount=AMOUNT,
            )
            if choice.randrange(ROLLED_BACK) == 0:
                transaction.set_rollback(True)
                self.rolled_back.append(order.pk)
            else:
                self.placed.append(order.pk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Counts of messages in Kafka, compared with the committed ones."""

    placed: int
    """Committed orders."""
    committed: int
    delivered: int
    """Distinct messages in the topics."""
    lost: int
    """Committed orders without a message."""
    phantoms: int
    """Messages of orders that were rolled back."""
    out_of_order: int
    """First deliveries after a later message of the same key."""
    duplicates: int
    charged: int
    """Orders that billing has charged."""
    is_balanced: bool
    """Whether the customers owe exactly the amount of the charged orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How many orders have been processed completely."""

    placed: int
    charged: int
    waiting: int
    """Messages in the outbox."""

    @property
    def is_over(self) -> bool:
        """Whether billing has charged every order and the outbox is empty."""
        return self.charged >= self.placed and not self.waiting

    def __str__(self) -> str:
        return (
            f"{self.charged:,} of {self.placed:,} orders charged,"
            f" {self.waiting:,} waiting in the outbox"
        )


def settled(placed: Orders) -> Settled:
    """Count the orders that have been processed."""
    return Settled(
        placed=len(placed.placed),
        charged=Charge.objects.count(),
        waiting=OutboxRecord.objects.count(),
    )


def compare(placed: Orders, bootstrap_servers: str) -> Comparison:
    """Read the topics and compare them with the committed orders."""
    seen: Counter[str] = Counter()
    told: set[int] = set()
    last: dict[tuple[str, bytes], int] = {}
    out_of_order = 0
    for message in read(bootstrap_servers, orders.ORDERS, orders.AUDIT, ACCOUNTS):
        topic, key = message.topic() or "", message.key() or b""
        sent_with = headers(message)
        seen[sent_with["outbox-message-id"]] += 1
        if topic == orders.ORDERS:
            told.add(int(key))
        number = int(sent_with["outbox-id"])
        is_first = seen[sent_with["outbox-message-id"]] == 1
        if is_first and number < last.get((topic, key), 0):
            out_of_order += 1
        last[topic, key] = max(number, last.get((topic, key), 0))
    charged = Charge.objects.count()
    owed = Account.objects.aggregate(owed=Sum("owed"))["owed"]
    return Comparison(
        placed=len(placed.placed),
        # Placing an order stashes two messages, charging it one.
        committed=2 * len(placed.placed) + charged,
        delivered=len(seen),
        lost=len(set(placed.placed) - told),
        charged=charged,
        is_balanced=owed == charged * AMOUNT,
        phantoms=len(set(placed.rolled_back) & told),
        out_of_order=out_of_order,
        duplicates=sum(seen.values()) - len(seen),
    )


def read(bootstrap_servers: str, *topics: str) -> list[Message]:
    """Return all messages of these topics, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "demonstration",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    partitions = [
        TopicPartition(topic, number, 0)
        for topic in topics
        for number in consumer.list_topics(topic, timeout=60).topics[topic].partitions
    ]
    consumer.assign(partitions)
    messages: list[Message] = []
    left = len(partitions)
    detector = StallDetector()
    while left:
        message = consumer.poll(0.5)
        if message is None:
            if detector.is_stalled((len(messages), left)):
                raise Stalled(f"Kafka sends no messages of {', '.join(topics)}.")
        elif (error := message.error()) is None:
            messages.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            left -= 1
        else:
            raise KafkaException(error)
    consumer.close()
    return messages


def headers(message: Message) -> dict[str, str]:
    """Return the headers that have a value."""
    pairs = message.headers() or []
    assert isinstance(pairs, list)
    return {name: value.decode() for name, value in pairs if isinstance(value, bytes)}
