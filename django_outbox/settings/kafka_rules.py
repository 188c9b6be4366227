"""
What is wrong, missing or risky in the Kafka settings, without a Kafka client.

What no process may have, `settings/rules.py` refuses with the other settings; the rest
is for those that use Kafka, and for `checks.py`. What librdkafka itself refuses
stands in `kafka/validation.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .options import OutboxSettings
from .problem import Problem, Rule
from .reserved_properties import FREE_FOR_CONSUMERS, OWNED_KAFKA_KEYS

ADDRESSES: Final = ("bootstrap.servers", "metadata.broker.list")
"""librdkafka's two names of one property."""

KAFKA_SETTINGS: Final = ("KAFKA", "PRODUCER_KAFKA", "CONSUMER_KAFKA")
"""The settings that hold librdkafka's properties, the one of all clients first."""

_FALSE: Final = frozenset({"false", "f", "0"})
"""What librdkafka takes for no."""


def servers_of(properties: Mapping[str, Any]) -> str:
    """Return the addresses in librdkafka's properties; empty: there are none."""
    return next((str(properties[n]) for n in ADDRESSES if properties.get(n)), "")


def has_servers(properties: Mapping[str, Any]) -> bool:
    """Whether librdkafka's properties say where Kafka is."""
    return bool(servers_of(properties))


def check_kafka(options: OutboxSettings) -> Iterator[Problem]:
    """Yield properties that the project may not set, and lists among the texts."""
    for name in KAFKA_SETTINGS:
        free = FREE_FOR_CONSUMERS if name == "CONSUMER_KAFKA" else ()
        for key, value in getattr(options, name).items():
            if key in OWNED_KAFKA_KEYS and key not in free:
                yield Problem(
                    Rule.KAFKA_KEY,
                    name,
                    f"{key!r} is owned by django-outbox: {OWNED_KAFKA_KEYS[key]}. "
                    "Remove it.",
                )
            elif isinstance(value, list | tuple):
                yield Problem(
                    Rule.VALUE,
                    name,
                    f"{key!r}: a {type(value).__name__} must be one text, with commas "
                    "in it.",
                )


def missing_servers(options: OutboxSettings) -> Iterator[Problem]:
    """Yield that nobody has said where Kafka is."""
    if not has_servers(options.KAFKA):
        yield Problem(
            Rule.KAFKA_SERVERS,
            "KAFKA",
            '"bootstrap.servers" is missing: say where Kafka is, for instance '
            '"bootstrap.servers": "kafka-1:9092,kafka-2:9092".',
        )


def risks(options: OutboxSettings) -> Iterator[Problem]:
    """Yield what lets others read or change what goes to Kafka."""
    told: set[Rule] = set()
    for name in KAFKA_SETTINGS:
        properties = {**options.KAFKA, **getattr(options, name)}
        for rule, message in _risks(properties):
            # What KAFKA has said is so in the others, too.
            if rule not in told:
                told.add(rule)
                yield Problem(rule, name, message)


def _risks(properties: Mapping[str, Any]) -> Iterator[tuple[Rule, str]]:
    protocol = _text(properties, "security.protocol")
    off = [
        name
        for name, values in (
            ("enable.ssl.certificate.verification", _FALSE),
            ("ssl.endpoint.identification.algorithm", {"none"}),
        )
        if _text(properties, name) in values
    ]
    if protocol.endswith("ssl") and off:
        yield (
            Rule.TLS_VERIFICATION,
            f"{' and '.join(off)} turn the verification of brokers off: anybody "
            "between them and this process can read and change everything. Remove "
            "that, and name the brokers' CA in ssl.ca.location.",
        )
    if protocol == "sasl_plaintext":
        yield (
            Rule.CLEAR_TEXT,
            "security.protocol SASL_PLAINTEXT sends credentials and messages without "
            "encryption. Use SASL_SSL.",
        )


def _text(properties: Mapping[str, Any], name: str) -> str:
    return str(properties.get(name, "")).lower()
