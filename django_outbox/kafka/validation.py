"""
Finds properties that librdkafka does not know, before anything is started.

`providers.py` calls it once. Making a client is what librdkafka offers to
check its configuration; without an address, a client connects to nothing.
"""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Producer

from ..exceptions import ConfigurationError
from ..options import OutboxSettings
from .config import (
    KafkaConfig,
    consumer_config,
    group_config,
    ledger_consumer_config,
    producer_config,
    transactional_config,
    transform_config,
)


def check_properties(options: OutboxSettings) -> None:
    """
    Make each kind of client once and drop it.

    Raises:
        ConfigurationError: with librdkafka's words, which name the property.
    """
    try:
        Producer(_unconnected(producer_config(options)))
        Producer(_unconnected(transform_config(options, "check")))
        if options.is_exactly_once:
            Producer(_unconnected(transactional_config(options, shard=0)))
            Consumer(_unconnected(ledger_consumer_config(options))).close()
        Consumer(_unconnected(consumer_config(options))).close()
        Consumer(_unconnected(group_config(options, "check"))).close()
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0]
        text = reason.str() if isinstance(error, KafkaException) else str(reason)
        raise ConfigurationError(f"KAFKA: {text.rstrip('.')}.") from error


def _unconnected(config: KafkaConfig) -> KafkaConfig:
    # Without an address librdkafka would warn, and nobody would want to know.
    kept = {key: value for key, value in config.items() if "servers" not in key}
    return kept | {"log_level": 0}
