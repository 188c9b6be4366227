"""
Finds properties that librdkafka does not know, before anything is started.

`providers.py` calls it once. Making a client is what librdkafka offers to
check its configuration; without an address, a client connects to nothing.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

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
    watch_config,
)

_MADE_OF: Final = {
    "session.timeout.ms": "SESSION_TIMEOUT",
    "max.poll.interval.ms": "MAX_POLL_INTERVAL",
    "message.timeout.ms": "DELIVERY_TIMEOUT",
    "transaction.timeout.ms": "DELIVERY_TIMEOUT",
}
"""Properties that are made of a setting."""


TOKENS_IN_BACKGROUND: Final = (2, 13)
"""The first confluent-kafka that calls `oauth_cb` while a call waits for the broker."""


def check_properties(options: OutboxSettings) -> None:
    """
    Make each kind of client once and drop it.

    Raises:
        ConfigurationError: in one line, with librdkafka's words, which name the
            property, and the setting from which it comes.
    """
    if not options.is_named:
        # Any name will do where nothing is connected.
        options = options.named("check")
    _check_callbacks(options, version("confluent-kafka"))
    try:
        Producer(_unconnected(producer_config(options)))
        Producer(_unconnected(transform_config(options, "check")))
        if options.is_exactly_once:
            Producer(_unconnected(transactional_config(options, shard=0)))
            Consumer(_unconnected(ledger_consumer_config(options))).close()
        Consumer(_unconnected(consumer_config(options))).close()
        Consumer(_unconnected(watch_config(options))).close()
        Consumer(_unconnected(group_config(options, "check"))).close()
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0]
        text = reason.str() if isinstance(error, KafkaException) else str(reason)
        words = " ".join(text.split()).rstrip(" .")
        raise ConfigurationError(f"{_setting(options, words)}: {words}.") from error


def _check_callbacks(options: OutboxSettings, driver: str) -> None:
    """Refuse a callback for tokens that most clients would never call."""
    installed = tuple(int(part) for part in driver.split(".")[:2])
    for name in ("KAFKA", "PRODUCER_KAFKA", "CONSUMER_KAFKA"):
        if "oauth_cb" in getattr(options, name) and installed < TOKENS_IN_BACKGROUND:
            raise ConfigurationError(
                f"{name}: 'oauth_cb' needs confluent-kafka 2.13, and {driver} is "
                "installed. Install that, or use 'sasl.oauthbearer.method': 'oidc'."
            )


def _setting(options: OutboxSettings, words: str) -> str:
    """Return the setting whose property librdkafka names."""
    for name in ("KAFKA", "PRODUCER_KAFKA", "CONSUMER_KAFKA"):
        if any(key in words for key in getattr(options, name)):
            return name
    return next((name for key, name in _MADE_OF.items() if key in words), "KAFKA")


def _unconnected(config: KafkaConfig) -> KafkaConfig:
    # Without an address librdkafka would warn, and nobody would want to know. With a
    # callback for tokens the driver would wait for one.
    left_out = ("bootstrap.servers", "metadata.broker.list", "oauth_cb")
    kept = {key: value for key, value in config.items() if key not in left_out}
    return kept | {"log_level": 0}
