"""Validation of the settings: what is wrong, and how to correct it. Without Django."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from math import isfinite
from typing import Any, Final

from .field_types import has_type, suggestion
from .kafka_rules import check_kafka, check_queues
from .options import OutboxSettings
from .problem import Problem, Rule

TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")
"""The names that Kafka accepts for a topic."""

TABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}\Z")
"""Short enough for `_archive` and index names to fit Postgres's 63 bytes."""

LARGEST_TRANSACTION: Final = 10_000
"""Records: a ledger of three such transactions, 24 bytes each, is below 1 MB."""

LARGEST_VALUE: Final = 16 * 1024 * 1024
"""Largest value of the tables in bytes, whatever MAX_VALUE_BYTES is."""

LARGEST_HEADERS: Final = 64 * 1024
"""Largest headers of one message in bytes, as PostgreSQL stores them: with up to 7 more
for each name and each value, which also limits the number of headers."""

MOST_CLUSTERS: Final = 32
"""Each cluster has a copy of all records, and a replication slot for each other."""

MOST_SHARDS: Final = 32
"""Each leader looks at the rows of all shards."""

LEAST_RETENTION: Final = 86_400.0
"""Seconds: the database refuses to drop records archived within the last day."""


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of these settings, causes before consequences."""
    known = {f.name: f for f in fields(OutboxSettings)}
    found = False
    for name, value in values.items():
        problem = (
            _check_type(name, value, known[name].type)
            if name in known
            else _unknown(name, known)
        )
        if problem:
            found = True
            yield problem
    if not found:
        settings = OutboxSettings(**values)
        yield from _check_values(settings)
        yield from _check_timing(settings)
        yield from check_kafka(settings)
        yield from check_queues(settings)


def _unknown(name: str, known: Mapping[str, Any]) -> Problem:
    hint = suggestion(str(name).upper(), known)
    return Problem(Rule.UNKNOWN, str(name), f"there is no such setting.{hint}")


def _check_type(name: str, value: Any, annotation: Any) -> Problem | None:
    if has_type(value, annotation):
        if isinstance(value, float) and not isfinite(value):
            return Problem(Rule.VALUE, name, f"{value!r} must be a finite number.")
        return None
    # A wrong value of a mapping may contain passwords.
    is_mapping = annotation.startswith("Mapping")
    shown = f"a {type(value).__name__}" if is_mapping else repr(value)
    return Problem(Rule.VALUE, name, f"{shown} is not of type {annotation}.")


_CHOICES: Final = {
    "DELIVERY": ("at-least-once", "exactly-once"),
    "MARKS": ("memory", "table"),
    "OFFSETS": ("kafka", "database"),
    "POISON_POLICY": ("block-key", "park"),
    "SERIES_ON_TIMEOUT": ("park", "discard"),
}
"""Settings with a fixed set of values in this version."""

_AT_LEAST: Final = {
    "SHARDS": 1,
    "SESSION_TIMEOUT": 0.5,
    "HEARTBEAT_TIMEOUT": 0.1,
    "HEARTBEAT_INTERVAL": 0.01,
    "MAX_POLL_INTERVAL": 1.0,
    "DRAIN_TIMEOUT": 0.1,
    "REVOKE_TIMEOUT": 0.0,
    "DATABASE_DEADLINE": 1.0,
    "DELIVERY_TIMEOUT": 0.1,
    "MAX_IN_FLIGHT": 1,
    "MAX_IN_FLIGHT_PER_KEY": 0,
    "MAX_IN_FLIGHT_BYTES": 2,
    "MARK_BATCH": 1,
    "TRANSACTION_BATCH": 1,
    "POLL_INTERVAL": 0.001,
    "MIN_POLL_INTERVAL": 0.001,
    "PARK_AFTER": 1,
    "RETRY_BACKOFF": 0.001,
    "RETRY_BACKOFF_MAX": 0.001,
    "CONSUMER_ATTEMPTS": 0,
    "CONSUMER_IDLE_TIMEOUT": 0.1,
    "PROCESSED_RETENTION": 0.0,
    "ARCHIVE_RETENTION": 0.0,
    "CLUSTER_ID": 0,
    "CLUSTERS_COUNT": 1,
    "MAXIMUM_DELAY": 0.0,
    "SERIES_TIMEOUT": 0.0,
    "SERIES_RETENTION": 0.0,
    "METER_INTERVAL": 0.1,
    "READY_AGE": 0.0,
    "MAX_VALUE_BYTES": 1,
}
"""Settings with a minimum."""

_LONGEST_OF_POSTGRES: Final = (
    2_147_483,
    "PostgreSQL counts its milliseconds in 32 bits",
)

_LONGEST: Final = (3_153_600_000, "that is a hundred years")

_AT_MOST: Final = {
    "SESSION_TIMEOUT": (
        1_800,
        "these are seconds, and brokers take no more (group.max.session.timeout.ms)",
    ),
    "DATABASE_DEADLINE": _LONGEST_OF_POSTGRES,
    "CONSUMER_IDLE_TIMEOUT": _LONGEST_OF_POSTGRES,
    **dict.fromkeys(
        (
            *("POLL_INTERVAL", "RETRY_BACKOFF_MAX", "METER_INTERVAL", "READY_AGE"),
            *("SERIES_TIMEOUT", "SERIES_RETENTION", "MAXIMUM_DELAY"),
            *("PROCESSED_RETENTION", "ARCHIVE_RETENTION"),
        ),
        _LONGEST,
    ),
    "MAX_IN_FLIGHT_PER_KEY": (1, "0 stands for any number"),
    "TRANSACTION_BATCH": (LARGEST_TRANSACTION, "its ledger must fit into one message"),
    "MAX_VALUE_BYTES": (LARGEST_VALUE, "the tables refuse larger values"),
    "CLUSTERS_COUNT": (MOST_CLUSTERS, "each cluster has a copy of all records"),
    "SHARDS": (MOST_SHARDS, "each leader looks at the rows of all shards"),
}
"""Settings with a maximum, and the reason."""


def _check_values(settings: OutboxSettings) -> Iterator[Problem]:
    for name, choices in _CHOICES.items():
        value = getattr(settings, name)
        if value not in choices:
            allowed = " or ".join(repr(choice) for choice in choices)
            yield Problem(Rule.VALUE, name, f"{value!r} must be {allowed}.")
    for name, least in _AT_LEAST.items():
        value = getattr(settings, name)
        if not value >= least:
            yield Problem(Rule.VALUE, name, f"{value!r} must be at least {least}.")
    for name, (most, reason) in _AT_MOST.items():
        value = getattr(settings, name)
        if value > most:
            words = f"{value} must be at most {most}: {reason}."
            yield Problem(Rule.VALUE, name, words)
    if 0 < settings.ARCHIVE_RETENTION < LEAST_RETENTION:
        words = f"{settings.ARCHIVE_RETENTION} must be 0 or at least {LEAST_RETENTION}."
        yield Problem(Rule.VALUE, "ARCHIVE_RETENTION", words)
    if settings.CLUSTER_ID >= settings.CLUSTERS_COUNT:
        yield Problem(
            Rule.VALUE,
            "CLUSTER_ID",
            f"{settings.CLUSTER_ID} must be below CLUSTERS_COUNT "
            f"({settings.CLUSTERS_COUNT}); cluster ids count from 0.",
        )
    if settings.CLUSTERS_COUNT > 1 and settings.MARKS != "memory":
        yield Problem(
            Rule.VALUE,
            "MARKS",
            f"{settings.MARKS!r} must be 'memory' with several clusters: "
            "marks in the table would conflict with those of other clusters.",
        )
    yield from _check_shards(settings)
    yield from _check_replicas(settings)
    yield from _check_names(settings)
    yield from _check_topics("ALLOWED_TOPICS", settings.ALLOWED_TOPICS)
    yield from _check_poison_policies(settings.TOPIC_POISON_POLICY)
    yield from _check_addresses(settings)


def _check_shards(settings: OutboxSettings) -> Iterator[Problem]:
    alone = {
        "MARKS": (settings.MARKS == "memory", "marks in the table have no shards."),
        "CLUSTERS_COUNT": (
            settings.CLUSTERS_COUNT == 1,
            "several clusters have no shards in this version.",
        ),
    }
    for name, (holds, reason) in alone.items():
        if settings.SHARDS > 1 and not holds:
            value = getattr(settings, name)
            words = f"{value!r} needs SHARDS = 1: {reason}"
            yield Problem(Rule.VALUE, name, words)


def _check_replicas(settings: OutboxSettings) -> Iterator[Problem]:
    replicas = settings.TOPIC_REPLICATION_FACTOR
    in_sync = settings.TOPIC_MIN_INSYNC_REPLICAS
    for name, number in (
        ("TOPIC_REPLICATION_FACTOR", replicas),
        ("TOPIC_MIN_INSYNC_REPLICAS", in_sync),
    ):
        if number is not None and number < 1:
            words = f"{number} must be at least 1, or None for the broker's default."
            yield Problem(Rule.VALUE, name, words)
    if replicas is not None and in_sync is not None and 0 < replicas < in_sync:
        yield Problem(
            Rule.VALUE,
            "TOPIC_MIN_INSYNC_REPLICAS",
            f"{in_sync} must not be above TOPIC_REPLICATION_FACTOR ({replicas}), or "
            "nothing could be written to these topics.",
        )


def _check_names(settings: OutboxSettings) -> Iterator[Problem]:
    if not TABLE_NAME.match(settings.TABLE):
        yield Problem(
            Rule.VALUE,
            "TABLE",
            f"{settings.TABLE!r} must be a plain SQL name of at most 48 characters.",
        )
    names = ["LEADER_TOPIC", "LEADER_GROUP"]
    if settings.LEADER_TOPIC == f"neli.{settings.LEADER_GROUP}":
        # Only the group was named.
        names.reverse()
    for name in names:
        value = getattr(settings, name)
        if settings.is_named and not TOPIC_NAME.match(value):
            yield Problem(
                Rule.VALUE,
                name,
                f"{value!r} must be 1 to 249 letters, digits, '.', '_' or '-'.",
            )
    suffix = settings.DEAD_LETTER_SUFFIX
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", suffix):
        yield Problem(
            Rule.VALUE,
            "DEAD_LETTER_SUFFIX",
            f"{suffix!r} must be 1 to 100 letters, digits, '.', '_' or '-'.",
        )


def _check_topics(name: str, topics: Iterable[Any]) -> Iterator[Problem]:
    for topic in topics:
        if not (isinstance(topic, str) and TOPIC_NAME.match(topic)):
            yield Problem(Rule.VALUE, name, f"{topic!r} is not a valid topic name.")


def _check_poison_policies(policies: Mapping[Any, Any]) -> Iterator[Problem]:
    name, choices = "TOPIC_POISON_POLICY", _CHOICES["POISON_POLICY"]
    yield from _check_topics(name, policies)
    for topic, policy in policies.items():
        if policy not in choices:
            allowed = " or ".join(map(repr, choices))
            words = f"{policy!r} of topic {topic!r} must be {allowed}."
            yield Problem(Rule.VALUE, name, words)


def _check_addresses(settings: OutboxSettings) -> Iterator[Problem]:
    for name in ("METRICS_ADDRESS", "CONSUMER_METRICS_ADDRESS"):
        address: str = getattr(settings, name)
        host, _, port = address.rpartition(":")
        is_number = port.isascii() and port.isdigit()
        if address and not (host and is_number and int(port) < 65536):
            yield Problem(
                Rule.VALUE,
                name,
                f"{address!r} must look like 127.0.0.1:9187, or be empty.",
            )


def _check_timing(settings: OutboxSettings) -> Iterator[Problem]:
    """The rules that keep two leaders apart (docs/concepts/neli.md)."""
    s = settings
    rules = (
        (
            "HEARTBEAT_TIMEOUT",
            s.HEARTBEAT_TIMEOUT < s.SESSION_TIMEOUT / 2,
            f"{s.HEARTBEAT_TIMEOUT} must be below half of SESSION_TIMEOUT "
            f"({s.SESSION_TIMEOUT}), or two processes could lead at once.",
        ),
        (
            "HEARTBEAT_INTERVAL",
            s.HEARTBEAT_INTERVAL <= s.HEARTBEAT_TIMEOUT / 2,
            f"{s.HEARTBEAT_INTERVAL} must be at most half of HEARTBEAT_TIMEOUT "
            f"({s.HEARTBEAT_TIMEOUT}), or one lost heartbeat fences the leader.",
        ),
        (
            "DELIVERY_TIMEOUT",
            s.DELIVERY_TIMEOUT <= s.SESSION_TIMEOUT,
            f"{s.DELIVERY_TIMEOUT} must not be above SESSION_TIMEOUT "
            f"({s.SESSION_TIMEOUT}), or a paused leader could send after its term.",
        ),
        (
            "MAX_POLL_INTERVAL",
            s.MAX_POLL_INTERVAL
            >= 2 * s.SESSION_TIMEOUT + s.HEARTBEAT_TIMEOUT + s.HEARTBEAT_INTERVAL,
            f"{s.MAX_POLL_INTERVAL} must not be below 2 * SESSION_TIMEOUT + "
            f"HEARTBEAT_TIMEOUT + HEARTBEAT_INTERVAL (2 * {s.SESSION_TIMEOUT} + "
            f"{s.HEARTBEAT_TIMEOUT} + {s.HEARTBEAT_INTERVAL}), or a rebalance could "
            "elect another process while this one leads.",
        ),
        (
            "DRAIN_TIMEOUT",
            s.DRAIN_TIMEOUT + s.REVOKE_TIMEOUT < s.MAX_POLL_INTERVAL,
            f"{s.DRAIN_TIMEOUT} and REVOKE_TIMEOUT ({s.REVOKE_TIMEOUT}) together must "
            f"be below MAX_POLL_INTERVAL ({s.MAX_POLL_INTERVAL}), or the broker will "
            "not wait for the drain.",
        ),
        (
            "MIN_POLL_INTERVAL",
            s.MIN_POLL_INTERVAL <= s.POLL_INTERVAL,
            f"{s.MIN_POLL_INTERVAL} must not be above POLL_INTERVAL "
            f"({s.POLL_INTERVAL}).",
        ),
        (
            "RETRY_BACKOFF",
            s.RETRY_BACKOFF <= s.RETRY_BACKOFF_MAX,
            f"{s.RETRY_BACKOFF} must not be above RETRY_BACKOFF_MAX "
            f"({s.RETRY_BACKOFF_MAX}).",
        ),
        (
            "MAXIMUM_DELAY",
            s.CLUSTERS_COUNT == 1
            or s.MAXIMUM_DELAY > s.SESSION_TIMEOUT + s.DRAIN_TIMEOUT,
            f"{s.MAXIMUM_DELAY} must be above SESSION_TIMEOUT + DRAIN_TIMEOUT "
            f"({s.SESSION_TIMEOUT} + {s.DRAIN_TIMEOUT}), or another cluster would take "
            "records over while this one elects its next leader.",
        ),
    )
    for name, holds, message in rules:
        if not holds:
            yield Problem(Rule.TIMING, name, message)
