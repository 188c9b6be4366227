"""
Validation of the Kafka settings without a Kafka client.

Reserved properties are errors in every process; missing servers are errors only in
processes that use Kafka; risks are warnings. librdkafka's own rules are not repeated
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .message_sizes import largest_message
from .options import OutboxSettings
from .problem import Problem, Rule
from .reserved_properties import FREE_FOR_CONSUMERS, RESERVED_PROPERTIES

ADDRESSES: Final = ("bootstrap.servers", "metadata.broker.list")
"""librdkafka has two names for this property."""

KAFKA_SETTINGS: Final = ("KAFKA", "PRODUCER_KAFKA", "CONSUMER_KAFKA")
"""The settings with librdkafka's properties, those of all clients first."""

_FALSE: Final = frozenset({"false", "f", "0"})
"""Values that librdkafka reads as false."""


def servers_of(properties: Mapping[str, Any]) -> str:
    """Return the addresses of the brokers, or an empty text."""
    return next((str(properties[n]) for n in ADDRESSES if properties.get(n)), "")


def check_kafka(options: OutboxSettings) -> Iterator[Problem]:
    """Yield reserved or misplaced properties, and lists where a text is expected."""
    for name in KAFKA_SETTINGS:
        free = FREE_FOR_CONSUMERS if name == "CONSUMER_KAFKA" else ()
        for key, value in getattr(options, name).items():
            if key in RESERVED_PROPERTIES and key not in free:
                yield Problem(
                    Rule.KAFKA_KEY,
                    name,
                    f"{key!r} is reserved by django-outbox: "
                    f"{RESERVED_PROPERTIES[key]}. Remove it.",
                )
            elif isinstance(value, list | tuple):
                yield Problem(
                    Rule.VALUE,
                    name,
                    f"{key!r}: a {type(value).__name__} must be one text with commas.",
                )
            elif (
                key in ADDRESSES
                and name != "KAFKA"
                and str(value) not in {"", servers_of(options.KAFKA)}
            ):
                yield Problem(
                    Rule.KAFKA_KEY,
                    name,
                    f"{key!r} must be that of KAFKA: all clients of an outbox must "
                    "reach the same brokers. Remove it.",
                )


def producer_limits(options: OutboxSettings) -> dict[str, int]:
    """Return limits of a producer's queue and of a message, where nobody sets them."""
    return {
        # librdkafka's own.
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 1_048_576,
        # Its own default, or what `stash()` accepts.
        "message.max.bytes": max(1_000_000, largest_message(options)),
    }


def check_queues(options: OutboxSettings) -> Iterator[Problem]:
    """Yield queues of producers that are too small for what they have to hold."""
    setting, defaults = "KAFKA", producer_limits(options)
    if {*defaults} & {*options.PRODUCER_KAFKA}:
        setting = "PRODUCER_KAFKA"
    limits = {**defaults, **options.KAFKA, **options.PRODUCER_KAFKA}
    try:
        messages, kbytes, largest = (int(limits[name]) for name in defaults)
    except (TypeError, ValueError):
        # librdkafka says what is wrong with a value that is not a number.
        return
    batch = options.TRANSACTION_BATCH
    if options.is_exactly_once and 0 < messages <= batch:
        yield Problem(
            Rule.VALUE,
            setting,
            f"'queue.buffering.max.messages' ({messages}) must be above "
            f"TRANSACTION_BATCH ({batch}): a transaction also has its ledger.",
        )
    if kbytes * 1024 < largest:
        yield Problem(
            Rule.VALUE,
            setting,
            f"'queue.buffering.max.kbytes' ({kbytes}) must hold a message of "
            f"'message.max.bytes' ({largest} bytes), or that message is never sent.",
        )


def missing_servers(options: OutboxSettings) -> Iterator[Problem]:
    """Yield a problem if no setting has the addresses of brokers."""
    if not servers_of(options.KAFKA):
        yield Problem(
            Rule.KAFKA_SERVERS,
            "KAFKA",
            '"bootstrap.servers" is missing; set the addresses of brokers, such as '
            '"bootstrap.servers": "kafka-1:9092,kafka-2:9092".',
        )


def risks(options: OutboxSettings) -> Iterator[Problem]:
    """Yield settings that let third parties read or change messages."""
    found: set[Rule] = set()
    for name in KAFKA_SETTINGS:
        properties = {**options.KAFKA, **getattr(options, name)}
        for rule, message in _risks(properties):
            # A property of KAFKA is valid for the other settings, too.
            if rule not in found:
                found.add(rule)
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
            f"{' and '.join(off)} disable the verification of brokers: anybody "
            "between them and this process can read and change all messages. Remove "
            "that, and set ssl.ca.location to the brokers' CA.",
        )
    if protocol == "sasl_plaintext":
        yield (
            Rule.CLEAR_TEXT,
            "security.protocol SASL_PLAINTEXT sends credentials and messages without "
            "encryption. Use SASL_SSL.",
        )


def _text(properties: Mapping[str, Any], name: str) -> str:
    return str(properties.get(name, "")).lower()
