"""What Spark's errors say of Kafka: an outage, a missing topic, deleted records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..exceptions import KafkaError, KafkaUnavailable, RecordsDeleted, TopicMissing

_OUTAGE: Final = re.compile(
    r"org\.apache\.kafka\.common\.errors\."
    r"(?:Timeout|Disconnect|Network)Exception: (.+)"
)
"""Errors of Spark's Kafka reader that mean an outage."""

_NO_TOPIC: Final = "UnknownTopicOrPartitionException"
"""Spark's error for a missing topic; it does not name the topic."""

_DATA_LOSS: Final = re.compile(
    r"data may have been lost\b.+?\bReason:\s*([^\n]+)", re.DOTALL
)
"""Spark's error for records that Kafka no longer has, and the reason."""


def reason_of_loss(text: str) -> str:
    """Return why Kafka no longer has records, from Spark's error; "" if it has all."""
    loss = _DATA_LOSS.search(text)
    return loss[1].rstrip(".") if loss else ""


def is_of_missing_topic(text: str) -> bool:
    """Return whether Spark's error is about a topic that does not exist."""
    return _NO_TOPIC in text


def kafka_error(text: str) -> KafkaError | None:
    """Return what Spark's error means, unless it is about records or not of Kafka."""
    if outage := _OUTAGE.search(text):
        return KafkaUnavailable(f"Kafka is unavailable: {outage[1].rstrip('.')}.")
    if is_of_missing_topic(text):
        return TopicMissing(
            "At least one topic does not exist; `doctor` names the missing ones."
        )
    return None


@contextmanager
def explained_reading() -> Iterator[None]:
    """
    Turn Spark's errors while a batch query reads topics into ours.

    Raises:
        KafkaUnavailable: no broker answers; call again later.
        RecordsDeleted: Kafka deleted records after the reading had begun.
        TopicMissing: a topic does not exist.
    """
    try:
        yield
    except Exception as error:
        # The class depends on where Spark runs.
        text = str(error)
        if reason := reason_of_loss(text):
            raise RecordsDeleted(
                f"Kafka deleted records while they were read: {reason}. Retention did"
                " that, or an administrator. Run the command again."
            ) from error
        if found := kafka_error(text):
            raise found from error
        raise
