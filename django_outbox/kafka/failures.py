"""
What the driver's errors mean: retry, poison, a new client, or the end of a consumer.

The names are librdkafka's; a leading underscore marks an error that the client
itself found.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError as DriverError

from ..exceptions import (
    ConfigurationError,
    DeliveryFailed,
    OutboxError,
    ProducerBroken,
    RecordPoisoned,
    StaleOffset,
)
from ..message.incoming import TopicPartition

STALE_MEMBER: Final = frozenset(
    {
        DriverError.ILLEGAL_GENERATION,
        DriverError.REBALANCE_IN_PROGRESS,
        DriverError.UNKNOWN_MEMBER_ID,
    }
)
"""Refusals of a commit that every rebalance brings."""

_POISON: Final = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PART",
        "_INVALID_ARG",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
    }
)
"""Errors of the record's destination."""

_POISON_IN_BATCH: Final = frozenset(
    {
        "INVALID_MSG_SIZE",
        "INVALID_RECORD",
        "MSG_SIZE_TOO_LARGE",
        "POLICY_VIOLATION",
        "RECORD_LIST_TOO_LARGE",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    }
)
"""Errors of a batch: one record is at fault, and the others fail with it."""


def failure(error: DriverError, *, is_alone: bool) -> DeliveryFailed:
    """
    Convert the driver's error to the relay's.

    `is_alone` means that the record was alone in its batch.
    """
    code, text = error.name(), error.str()
    if error.fatal() or code == "_FATAL":
        return ProducerBroken(text, code=code)
    if code in _POISON:
        return RecordPoisoned(text, code=code)
    if code in _POISON_IN_BATCH:
        return RecordPoisoned(text, code=code, is_certain=is_alone)
    return DeliveryFailed(text, code=code)


def end_of_reading(error: DriverError, place: TopicPartition) -> OutboxError | None:
    """Return why a consumer cannot go on, if it cannot: the driver reads no further."""
    if error.name() == "_FATAL":
        return ConfigurationError(
            "CONSUMER_KAFKA: this member of the consumer group is out of it for "
            f"good: {error.str()}. Another process may have the same "
            "'group.instance.id'."
        )
    if error.name() == "_AUTO_OFFSET_RESET":
        topic, partition = place
        return StaleOffset(
            f"{topic}/{partition}: {error.str()}, and auto.offset.reset is 'error'. "
            "Start the group once with --from-beginning or --from-time."
        )
    return None


def no_offset() -> DeliveryFailed:
    """
    Return the error for an acknowledgement without an offset.

    The first batch to a starting topic can be refused, sent again and then be
    deduplicated: it is reported as delivered, but is not in the log.
    """
    message = "Kafka acknowledged the record without an offset: it may be lost."
    return DeliveryFailed(message, code="NO_OFFSET")


def never_fits() -> RecordPoisoned:
    """Return the error for a record that not even an empty queue takes."""
    message = (
        "The record is larger than the client's queue: queue.buffering.max.kbytes."
    )
    return RecordPoisoned(message, code="_QUEUE_FULL")


def too_large() -> RecordPoisoned:
    """Return the error for a record above its topic's limit; compressed, it may fit."""
    message = "The record is larger than max.message.bytes of its topic."
    return RecordPoisoned(message, code="MSG_SIZE_TOO_LARGE", is_certain=False)
