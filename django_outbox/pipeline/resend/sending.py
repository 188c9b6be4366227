"""
The lake's way back: rows of a DataFrame become records of Kafka.

`replay.py` and `backfill.py` end here. Spark's sink has no transactions: a
task that is tried again sends its rows again, in the same order. So what
readers see first of each key is in order, and copies carry the message id
that tells them apart.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ...exceptions import ConfigurationError, KafkaError, TopicMissing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..pipeline_settings import PipelineSettings

_OWNED: Final = {
    # What the sink calls sent is on every replica, and a retry of the
    # producer neither repeats nor overtakes.
    "acks": "all",
    "enable.idempotence": "true",
}

_DEFAULTS: Final = {
    "compression.type": "lz4",
    # A batch that expired while later ones went through would break the
    # order: a broker may be away for as long as this, in milliseconds.
    "delivery.timeout.ms": "600000",
}

_REASON: Final = re.compile(r"Caused by: [\w.$]*\.(\w+(?:: .*)?)")


def producer_options(settings: PipelineSettings) -> dict[str, str]:
    """
    Return what Spark's sink wants, the settings' own properties among it.

    Raises:
        ConfigurationError: there is no broker.
    """
    if not settings.kafka.get("bootstrap.servers"):
        raise ConfigurationError(
            "kafka: 'bootstrap.servers' is missing (KAFKA_BOOTSTRAP_SERVERS)."
        )
    properties = {**_DEFAULTS, **settings.kafka, **_OWNED}
    return {f"kafka.{name}": value for name, value in properties.items()}


def send(records: DataFrame, settings: PipelineSettings) -> None:
    """
    Send all rows; return when every one is acknowledged.

    A topic that is missing is made by the broker, with its default number of
    partitions, where it does so. Which partition a record goes to is decided
    by murmur2 of its key, as in the relay, unless the row says it.

    Args:
        records: Columns `topic` (text), `key` and `value` (bytes, or null),
            `headers` (array of structs of text and bytes), and `partition`
            (integer, or null) if it matters.

    Raises:
        ConfigurationError: there is no broker in the settings.
        TopicMissing: a topic or partition is not there, and is not made.
        KafkaError: something else went wrong; what was sent stays sent.
    """
    options = producer_options(settings)
    try:
        records.write.format("kafka").options(**options).save()
    except Exception as error:
        # Depending on where Spark runs, it is one of several classes.
        reasons = _REASON.findall(str(error)) or [str(error).splitlines()[0]]
        reason = str(reasons[-1]).strip()
        if "not present in metadata" in reason:
            raise TopicMissing(
                f"{reason} Create it: this broker does not do it by itself, or"
                " has fewer partitions than the records want."
            ) from error
        raise KafkaError(
            f"Not all records were sent, and those that were stay: {reason}"
        ) from error
