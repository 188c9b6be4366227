"""
How each package's relay reaches Kafka.

django-jaiminho calls a function, django-outbox-pattern a connection of the
class that its settings name, and django-celery-outbox sends Celery tasks, here
by Kombu's own transport for Kafka. All three let go of a row when that has
returned, so each message is acknowledged before the next.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import structlog  # type: ignore[import-not-found]
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from django_celery_outbox import OutboxCelery  # type: ignore[import-not-found]
from jaiminho.send import save_to_outbox  # type: ignore[import-not-found]

SERVERS = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
PRODUCER = {"acks": "all", "enable.idempotence": True, "linger.ms": 0}

app = OutboxCelery(
    "project",
    broker=f"confluentkafka://{SERVERS.split(',')[0]}",
    broker_transport_options={
        "kafka_common_config": {"bootstrap.servers": SERVERS},
        "kafka_producer_config": PRODUCER,
    },
)
# It prints several lines for each task otherwise.
structlog.configure(
    wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING)
)

_refused: list[KafkaError] = []


@save_to_outbox  # type: ignore[untyped-decorator]
def publish(topic: str, value: str, key: str, id: int) -> None:
    """Send a message of django-jaiminho's outbox."""
    send(topic, value, key, {"id": str(id)})


class KafkaConnection:
    """What django-outbox-pattern asks of a STOMP connection, on Kafka."""

    def __init__(self, **_: object) -> None:
        self._is_connected = False

    def connect(self, **_: object) -> None:
        self._is_connected = True

    def is_connected(self) -> bool:
        return self._is_connected

    def disconnect(self) -> None:
        self._is_connected = False

    def send(self, body: str, destination: str, headers: Mapping[str, Any]) -> None:
        """Send a message of the outbox."""
        send(destination, body, headers["key"], headers)


def send(topic: str, value: str, key: str, headers: Mapping[str, str]) -> None:
    """Return when a message is acknowledged."""
    producer = _producer()
    producer.produce(topic, value, key, headers=dict(headers), on_delivery=_report)
    while len(producer):
        producer.poll(1.0)
    if _refused:
        raise KafkaException(_refused.pop())


def _report(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        _refused.append(error)


@cache
def _producer() -> Producer:
    return Producer({"bootstrap.servers": SERVERS, **PRODUCER})
