"""
Finds properties that librdkafka refuses, before anything starts.

librdkafka checks a configuration only when it creates a client; without an
address, the client connects to nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer

from ..exceptions import ConfigurationError
from ..settings.kafka_rules import ADDRESSES, KAFKA_SETTINGS, missing_servers
from ..settings.options import OutboxSettings
from ..settings.problem import Problem, Rule
from .config import (
    DEFAULTS,
    KafkaConfig,
    consumer_config,
    group_config,
    is_secret,
    ledger_consumer_config,
    producer_config,
    transactional_config,
    transform_config,
    watch_config,
)

_SETTING_OF_PROPERTY: Final = {
    "session.timeout.ms": "SESSION_TIMEOUT",
    "max.poll.interval.ms": "MAX_POLL_INTERVAL",
    "message.timeout.ms": "DELIVERY_TIMEOUT",
    "transaction.timeout.ms": "DELIVERY_TIMEOUT",
}
"""Properties that come from other settings."""

_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")

_PLUGINS: Final = "plugin.library.paths"
"""Libraries, perhaps of another machine; librdkafka loads them at once."""

_MIN_SECRET_LENGTH: Final = 4
"""Characters: shorter values occur in other text by chance."""


def property_problems(options: OutboxSettings) -> Iterator[Problem]:
    """
    Yield the properties that librdkafka refuses, and why.

    Opens no file, requests no token and connects to nothing, so that checks can
    run where the harvester's files and network do not exist.
    """
    for setting in KAFKA_SETTINGS:
        properties = _offline_properties(getattr(options, setting))
        if not properties or not (whole := _refusal({**DEFAULTS, **properties})):
            continue
        # librdkafka names only the first refused property, and not always as given.
        refused = [
            (name, text)
            for name, value in properties.items()
            if (text := _refusal({name: value}))
        ]
        for name, text in refused:
            message = f"{name!r}: {_explained(name, text)}"
            yield Problem(Rule.KAFKA_PROPERTY, setting, _redacted(message, options))
        if not refused:
            yield Problem(Rule.KAFKA_PROPERTY, setting, _redacted(f"{whole}.", options))


TOKENS_IN_BACKGROUND: Final = (2, 13)
"""The first confluent-kafka that calls `oauth_cb` while another call blocks."""


def check_properties(options: OutboxSettings) -> None:
    """
    Create each kind of client once and drop it.

    Raises:
        ConfigurationError: one line with librdkafka's text, which names the
            property, and the setting that it comes from.
    """
    if not options.is_named:
        # Without a connection any name will do.
        options = options.named("check")
    _check_callbacks(options, version("confluent-kafka"))
    for problem in (*property_problems(options), *missing_servers(options)):
        raise ConfigurationError(f"{problem.setting}: {problem.message}")
    try:
        Producer(_unconnected(producer_config(options)))
        Producer(_unconnected(transform_config(options, "check")))
        if options.is_exactly_once:
            Producer(_unconnected(transactional_config(options, shard=0, origin=0)))
            Consumer(_unconnected(ledger_consumer_config(options))).close()
        Consumer(_unconnected(consumer_config(options))).close()
        Consumer(_unconnected(watch_config(options))).close()
        Consumer(_unconnected(group_config(options, "check"))).close()
    except (KafkaException, TypeError, ValueError) as error:
        text = _error_text(error)
        text = _redacted(f"{_setting(options, text)}: {text}.", options)
        # Not chained: the text of the driver's error contains the values.
        raise ConfigurationError(text) from None


def check_transforms(options: OutboxSettings) -> None:
    """
    Check what a group that transforms needs of its properties.

    Only a client that reads committed records waits for the offsets of a transaction
    whose outcome is open, when it takes a partition over.

    Raises:
        ConfigurationError: its clients would read uncommitted records.
    """
    level = group_config(options, "check")["isolation.level"]
    if str(level).lower() != "read_committed":
        name = "isolation.level"
        setting = "CONSUMER_KAFKA" if name in options.CONSUMER_KAFKA else "KAFKA"
        raise ConfigurationError(
            f"{setting}: {name} is {level!r}: a group with transforms=True needs "
            "'read_committed', or its output could be sent twice. Remove the property."
        )


def _refusal(properties: Mapping[str, Any]) -> str:
    """Return why librdkafka refuses properties; empty if it accepts them."""
    config: KafkaConfig = {**properties, "log_level": 0}
    try:
        Producer(config)
    except (KafkaException, TypeError, ValueError) as error:
        return _error_text(error)
    return ""


def _explained(name: str, text: str) -> str:
    """Explain why librdkafka refuses a property."""
    if not text.startswith("No such configuration property"):
        return f"{text}."
    wanted = str(name).lower().replace("_", ".").replace("-", ".")
    near = difflib.get_close_matches(wanted, _known(), n=1, cutoff=0.7)
    hint = f'; did you mean "{near[0]}"?' if near else "."
    return f"no such librdkafka property{hint}"


@cache
def _known() -> list[str]:
    """Return librdkafka's property names, for hints: it has no API for them."""
    text = (resources.files(__package__) / "properties.txt").read_text("utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


def _error_text(error: Exception) -> str:
    reason = error.args[0]
    text = reason.str() if isinstance(error, KafkaException) else str(reason)
    return " ".join(text.split()).rstrip(" .")


def _redacted(text: str, options: OutboxSettings) -> str:
    """Hide the values of passwords and keys in a text."""
    for setting in KAFKA_SETTINGS:
        for name, value in getattr(options, setting).items():
            secret = " ".join(str(value).split())
            if is_secret(str(name)) and len(secret) >= _MIN_SECRET_LENGTH:
                text = text.replace(secret, "[hidden]")
    return text


def _check_callbacks(options: OutboxSettings, driver: str) -> None:
    """Refuse a token callback that this driver would not call in most clients."""
    installed = tuple(int(part) for part in driver.split(".")[:2])
    for name in KAFKA_SETTINGS:
        if "oauth_cb" in getattr(options, name) and installed < TOKENS_IN_BACKGROUND:
            raise ConfigurationError(
                f"{name}: 'oauth_cb' needs confluent-kafka 2.13 or later; {driver} is "
                "installed. Upgrade it, or use 'sasl.oauthbearer.method': 'oidc'."
            )


def _setting(options: OutboxSettings, text: str) -> str:
    """Return the setting with the property that librdkafka names."""
    for name in KAFKA_SETTINGS:
        if any(key in text for key in getattr(options, name)):
            return name
    return next(
        (name for key, name in _SETTING_OF_PROPERTY.items() if key in text), "KAFKA"
    )


def _unconnected(config: Mapping[str, Any]) -> KafkaConfig:
    # No log level: librdkafka would warn of the missing address. No callbacks: one
    # for tokens would be called.
    kept = {
        name: value
        for name, value in config.items()
        if name not in ADDRESSES and not callable(value)
    }
    return kept | {"log_level": 0}


def _offline_properties(properties: Mapping[str, Any]) -> KafkaConfig:
    """Return the properties that need no files, login or network."""
    kept = {
        name: value
        for name, value in properties.items()
        if name not in (*ADDRESSES, _PLUGINS) and not callable(value)
    }
    # Without TLS or a login the client only checks the values.
    if str(kept.get("security.protocol")).lower() in _PROTOCOLS:
        del kept["security.protocol"]
    return kept
