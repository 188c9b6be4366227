"""
What an application writes when it has no library for it.

    python -m tests.benchmarks.consuming.by_hand

A transaction for each message claims its id and inserts the row; the offset is
stored when it has committed, and sent to Kafka in the background. It waits in
no outage, sets no message aside and does not know whether its partition has
gone to another process.
"""

from __future__ import annotations

import os

import psycopg
from confluent_kafka import Consumer, KafkaError, Message

INSERT = "INSERT INTO bench_effects (key, value) VALUES (%s, %s)"
CLAIM = """
INSERT INTO bench_processed (consumer, key) VALUES (%s, %s) ON CONFLICT DO NOTHING
"""


def main() -> None:
    """Handle all messages of the topic, then end."""
    group = os.environ["BENCH_GROUP"]
    client = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 500,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
        }
    )
    client.subscribe([os.environ["BENCH_TOPIC"]])
    ended: set[int | None] = set()
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        while not ended or len(ended) < len(client.assignment()):
            message = client.poll(0.2)
            if message is None:
                continue
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
                continue
            key, value = message.key() or b"", message.value() or b""
            claim = [group, _message_id(message)]
            with connection.transaction():
                if connection.execute(CLAIM, claim).rowcount:
                    connection.execute(INSERT, [key.decode(), value.decode()])
            client.store_offsets(message)
    client.close()


def _message_id(message: Message) -> str:
    for name, value in message.headers() or ():
        if name == "outbox-message-id" and isinstance(value, bytes):
            return value.decode()
    raise LookupError("a message without an id")


if __name__ == "__main__":
    main()
