"""
Sends the rows of a DataFrame to Kafka.

Spark's Kafka sink has no transactions: a task that is retried sends its rows
again, in the same order. So the first deliveries of each key are in order, and
duplicates can be recognized by their message id.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ...exceptions import KafkaError, TopicMissing
from ...wording import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..pipeline_settings import PipelineSettings

_RESERVED: Final = {
    # An acknowledged record is on every in-sync replica, and retries of the
    # producer neither duplicate nor reorder records.
    "acks": "all",
    "enable.idempotence": "true",
}

_DEFAULTS: Final = {
    "compression.type": "lz4",
    # Milliseconds that a broker may be unavailable. A batch that expires while
    # later ones succeed would break the order.
    "delivery.timeout.ms": "600000",
}

_REASON: Final = re.compile(r"Caused by: [\w.$]*\.(\w+(?:: .*)?)")


def producer_options(settings: PipelineSettings) -> dict[str, str]:
    """
    Return the options of Spark's Kafka sink, including the settings' properties.

    Raises:
        ConfigurationError: no broker is configured.
    """
    settings.require_brokers()
    properties = {**_DEFAULTS, **settings.kafka, **_RESERVED}
    return {f"kafka.{name}": value for name, value in properties.items()}


def send(records: DataFrame, settings: PipelineSettings, *, again: str) -> None:
    """
    Send all rows; return when Kafka has acknowledged every one.

    The broker may create missing topics, with its default number of partitions.
    A record's partition is `partition` if set, else murmur2 of the key, as in
    the relay.

    Args:
        records: Columns `topic` (text), `key` and `value` (bytes, or null),
            `headers` (array of structs of text and bytes), and optionally
            `partition` (integer, or null).
        again: How to send them again, in one sentence; ends the message of an error.

    Raises:
        ConfigurationError: no broker is configured.
        TopicMissing: a topic or partition does not exist and is not created.
        KafkaError: sending failed; some records may have been sent.
    """
    options = producer_options(settings)
    try:
        records.write.format("kafka").options(**options).save()
    except Exception as error:
        # The class depends on where Spark runs.
        reasons = _REASON.findall(str(error)) or [first_line(error)]
        reason = str(reasons[-1]).strip()
        if "not present in metadata" in reason:
            raise TopicMissing(
                f"{reason} Create it: this broker does not create topics"
                f" automatically, or the topic has too few partitions. {again}"
            ) from error
        raise KafkaError(
            f"Sending failed; some records may have been sent: {reason.rstrip('.')}."
            f" {again}"
        ) from error
