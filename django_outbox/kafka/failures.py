"""
What the driver's errors mean to the relay: try again, poison, or rebuild.

`producer.py` hands over each error of a produce call or a delivery report.
Names are those of librdkafka's list; a leading underscore marks an error that
the client itself found.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError as DriverError

from ..exceptions import DeliveryFailed, ProducerBroken, RecordPoisoned

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
"""The record's own destination is at fault."""

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
"""Said of a whole batch: one record is at fault, and its neighbours fail too."""


def failure(error: DriverError, *, is_alone: bool) -> DeliveryFailed:
    """
    Turn the driver's error into the relay's.

    `is_alone` says that the record shared its batch with no other.
    """
    code, text = error.name(), error.str()
    if error.fatal() or code == "_FATAL":
        return ProducerBroken(text, code=code)
    if code in _POISON:
        return RecordPoisoned(text, code=code)
    if code in _POISON_IN_BATCH:
        return RecordPoisoned(text, code=code, is_certain=is_alone)
    return DeliveryFailed(text, code=code)


def no_offset() -> DeliveryFailed:
    """
    Refuse an acknowledgement that names no offset.

    A first batch to a topic that is just coming up can be refused, sent again
    and then taken for a duplicate: reported as delivered, yet not in the log.
    """
    message = "Kafka acknowledged the record without an offset: it may be lost."
    return DeliveryFailed(message, code="NO_OFFSET")
