"""What the tests do with a Kafka: make topics and read them to their end."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias
from urllib.error import HTTPError
from uuid import uuid4

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)
from confluent_kafka.cimpl import NewTopic

from django_outbox.devstack import Stack
from django_outbox.devstack.embedded_kafka import EmbeddedKafka, is_kafka_there
from django_outbox.devstack.embedded_postgres import is_postgres_there
from django_outbox.exceptions import OutboxError

from .machine import do_without
from .waiting import eventually

LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Headers: TypeAlias = list[tuple[str, str | bytes | None]]
"""Of a record, as the client takes and gives them."""


def text_of(value: str | bytes | None) -> str:
    """Return a header's value as text; the empty one for none."""
    return value if isinstance(value, str) else (value or b"").decode()


@contextmanager
def own_kafka() -> Iterator[str]:
    """Start a Kafka that no other test uses, and yield its address."""
    try:
        kafka = EmbeddedKafka(progress=print)
    except OutboxError as error:
        do_without(str(error))
    try:
        kafka.start()
        yield kafka.address
    finally:
        kafka.close()


def start_missing(servers: Stack) -> None:
    """Start what a test has stopped or killed."""
    for service, answers in (
        (servers.postgres, is_postgres_there),
        (servers.kafka, is_kafka_there),
    ):
        if not answers(service.address):
            service.start()


class Topics:
    """Topics of one broker, each with a name that no other test has."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.servers = bootstrap_servers
        # Servers come and go in tests: their clients need not tell of it.
        self._admin = AdminClient(
            {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        )

    def create(
        self,
        name: str = "",
        *,
        partitions: int = 1,
        config: dict[str, str] | None = None,
    ) -> str:
        """Make a topic and return its name when all its replicas are in sync."""
        name = name or f"test-{uuid4()}"
        # As many replicas as the brokers are set to make.
        topic = NewTopic(name, partitions, -1, config=config or {})
        self._admin.create_topics([topic])[name].result(timeout=15)
        eventually(
            lambda: self._is_in_sync(name, partitions),
            what=f"replicas of {name}",
            interval=0.01,
        )
        return name

    def delete_all(self) -> None:
        """Delete all topics but the broker's own."""
        names = self._admin.list_topics(timeout=15).topics
        ours = [name for name in names if not name.startswith("__")]
        for deleted in self._admin.delete_topics(ours).values() if ours else ():
            deleted.result(timeout=15)

    def leader(self, topic: str) -> int:
        """Return the id of the broker that leads the first partition of a topic."""
        found = self._admin.list_topics(topic, timeout=15).topics[topic]
        return found.partitions[0].leader

    def are_in_sync(self) -> bool:
        """Whether every partition of every topic has a leader and all its replicas."""
        return all(
            map(_are_in_sync, self._admin.list_topics(timeout=15).topics.values())
        )

    def is_in_transaction(self, topic: str) -> bool:
        """Whether the topic holds records of a transaction that has not ended."""
        # In this order: one that ends in between is none.
        end = self._ends(topic, IsolationLevel.READ_UNCOMMITTED)
        stable = self._ends(topic, IsolationLevel.READ_COMMITTED)
        return any(stable[place] < end[place] for place in end)

    def configure(self, topic: str, name: str, value: str) -> None:
        """Set a property of a topic."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(
            ResourceType.TOPIC, topic, incremental_configs=[entry]
        )
        altered = self._admin.incremental_alter_configs([resource])
        altered[resource].result(timeout=15)

    def read(
        self,
        *topics: str,
        at_least: int = 0,
        isolation_level: str = "read_committed",
        is_in_transaction: bool = False,
    ) -> list[Message]:
        """
        Return all messages of these topics, in order for each partition.

        The end of a partition is its last record, and not the first record of
        a transaction: one that has just ended is still open for a moment.

        Args:
            at_least: Read past the present end until there are so many.
            isolation_level: What to take of unfinished transactions.
            is_in_transaction: The caller has a transaction open, so the end is
                its first record.
        """
        messages: list[Message] = []
        at_end: set[tuple[str, int]] = set()
        with self._consumer(isolation_level) as consumer:
            partitions = self._partitions(consumer, topics)
            consumer.assign(partitions)

            def read_next() -> None:
                if (message := consumer.poll(0.2)) is None:
                    return
                place = (message.topic() or "", message.partition() or 0)
                if (error := message.error()) is None:
                    at_end.discard(place)
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    # From the answer in which the partition came to its end.
                    _, end = consumer.get_watermark_offsets(
                        TopicPartition(*place), cached=True
                    )
                    if is_in_transaction or (message.offset() or 0) >= end:
                        at_end.add(place)
                else:
                    raise KafkaException(error)

            eventually(
                lambda: len(messages) >= at_least and len(at_end) == len(partitions),
                what=lambda: (
                    f"{len(messages)} messages of at least {at_least} in {topics}, at"
                    f" the end of {len(at_end)} of {len(partitions)} partitions"
                ),
                meanwhile=read_next,
            )
        return messages

    def _ends(self, topic: str, isolation: IsolationLevel) -> dict[int, int]:
        """Return the end of each partition, as a reader of this level sees it."""
        partitions = self._admin.list_topics(topic, timeout=15).topics[topic].partitions
        asked = {TopicPartition(topic, n): LATEST for n in partitions}
        found = self._admin.list_offsets(asked, isolation_level=isolation)
        return {place.partition: f.result(15).offset for place, f in found.items()}

    def _is_in_sync(self, name: str, partitions: int) -> bool:
        topic = self._admin.list_topics(name, timeout=5).topics[name]
        return (
            topic.error is None
            and len(topic.partitions) == partitions
            and _are_in_sync(topic)
        )

    @contextmanager
    def _consumer(self, isolation_level: str) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": f"test-{uuid4()}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation_level,
                "fetch.wait.max.ms": 50,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def _partitions(
        self, consumer: Consumer, topics: tuple[str, ...]
    ) -> list[TopicPartition]:
        partitions = []
        for name in topics:
            topic = consumer.list_topics(name, timeout=10).topics[name]
            if topic.error is not None:
                raise KafkaException(topic.error)
            partitions += [
                TopicPartition(name, number, 0) for number in topic.partitions
            ]
        return partitions


def _are_in_sync(topic: TopicMetadata) -> bool:
    return all(
        p.leader >= 0 and len(p.isrs) == len(p.replicas)
        for p in topic.partitions.values()
    )


def fetch(address: str, path: str) -> tuple[int, str]:
    """Return the status and the text that host:port answers with."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def is_ready(address: str) -> bool:
    """Whether a process says that it does its part."""
    return fetch(address, "/readyz")[0] == 200
