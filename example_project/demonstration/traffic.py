"""
The two sides of several clusters: committed records, and messages in Kafka.

A `Writer` inserts into the outbox of one cluster at a steady rate, with plain
SQL, and rolls back every tenth transaction. The `Tally` reads the topic of all
clusters meanwhile, and counts messages by source cluster and sender.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Final

import psycopg
from confluent_kafka import Consumer, Message

from .ledger import ROLLED_BACK, headers

TOPIC: Final = "clusters"

KEYS: Final = 50
"""Number of keys; all clusters use the same ones."""

_INSERT: Final = """\
INSERT INTO outbox (kafka_topic, kafka_key, kafka_value) VALUES (%s, %s, %s)
RETURNING message_id::text"""


class Writer:
    """Writes to a cluster's outbox on a thread between `start()` and `finish()`."""

    def __init__(self, number: int, url: str, *, rate: float) -> None:
        self.committed: set[str] = set()
        """Message ids."""
        self.rolled_back: set[str] = set()
        self._url = url
        self._pause = 1 / rate
        self._choice = random.Random(number)  # noqa: S311 - picks keys, no secret
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def finish(self) -> None:
        """Stop writing; may be called at any time."""
        self._end.set()
        if self._thread.ident:
            self._thread.join()

    def _write(self) -> None:
        due = time.monotonic()
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._end.is_set():
                self._write_one(connection)
                due += self._pause
                self._end.wait(max(0.0, due - time.monotonic()))

    def _write_one(self, connection: psycopg.Connection) -> None:
        key = f"key-{self._choice.randrange(KEYS)}"
        keeps = self._choice.randrange(ROLLED_BACK) != 0
        with connection.transaction(force_rollback=not keeps):
            row = connection.execute(_INSERT, [TOPIC, key, "{}"]).fetchone()
        assert row is not None
        (self.committed if keeps else self.rolled_back).add(row[0])


class Tally:
    """Counts the messages in Kafka on a thread, until the block ends."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.seen: Counter[str] = Counter()
        """Deliveries of each message id."""
        self.out_of_order = 0
        """First deliveries after a later record of the same key and cluster."""
        self._sent: Counter[tuple[int, str]] = Counter()
        self._last: dict[tuple[int, bytes], int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "tally",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Tally:
        self._consumer.subscribe([TOPIC])
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
        self._consumer.close()

    def sent(self, clusters: Mapping[str, int]) -> Counter[tuple[int, int]]:
        """
        Count messages by the cluster that wrote and the cluster that sent them.

        Args:
            clusters: Cluster of each leader id.
        """
        counts: Counter[tuple[int, int]] = Counter()
        for (source, leader_id), count in list(self._sent.items()):
            counts[source, clusters.get(leader_id, -1)] += count
        return counts

    def _read(self) -> None:
        while not self._end.is_set():
            for message in self._consumer.consume(500, timeout=0.2):
                # The topic does not exist before the first record.
                if message.error() is None:
                    self._count(message)

    def _count(self, message: Message) -> None:
        sent_with, key = headers(message), message.key() or b""
        assert isinstance(key, bytes)
        message_id, number = sent_with["outbox-message-id"], int(sent_with["outbox-id"])
        source = int(sent_with["outbox-source"].rpartition("/")[2])
        self._sent[source, sent_with["outbox-leader-id"]] += 1
        last = self._last.get((source, key), 0)
        self.out_of_order += message_id not in self.seen and number < last
        self._last[source, key] = max(number, last)
        self.seen[message_id] += 1
