"""
Turns the settings of an outbox into librdkafka's configuration maps.

Durations of settings, in seconds, become milliseconds here.

A map has three layers: defaults that a project may override, the project's own
`KAFKA` (and `PRODUCER_KAFKA` or `CONSUMER_KAFKA`) properties, and the reserved
properties on which the guarantees rest. A project that sets one of those is refused,
or, where only some clients need it, overridden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from confluent_kafka import libversion

from ..settings.kafka_rules import producer_limits
from ..settings.options import OutboxSettings

KafkaConfig: TypeAlias = dict[str, Any]
"""librdkafka properties by their own dotted names."""

UNKNOWN_TOPIC_TIMEOUT: Final = 3.0
"""Seconds for a topic to be created before a record to it fails; librdkafka's default
of 30 would outlast the delivery time-out."""

LONGEST_SOCKET_TIMEOUT: Final = 300_000
"""Milliseconds: librdkafka accepts no more."""

DEFAULTS: Final[KafkaConfig] = {
    "client.id": "django-outbox",
    # Reconnect to a recovered broker within about a second.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "socket.keepalive.enable": True,
    # Nagle's algorithm would delay single records and heartbeats.
    "socket.nagle.disable": True,
    # Give up a connection that does not answer after this long.
    "socket.timeout.ms": 10_000,
}
"""Of every client; a project may override them."""

_KEEPS_BROKERS: Final[KafkaConfig] = (
    {"metadata.recovery.strategy": "none"} if libversion()[1] >= 0x020B00FF else {}
)
"""After the loss of all connections a client returns to the brokers that it knows. By
default, since version 2.11, librdkafka starts over with `bootstrap.servers`, and sends
nothing for one to three seconds. For clients that are made again when they fail."""

_SHOWN: Final = frozenset({"sasl.mechanism", "sasl.mechanisms"})
"""The only `sasl.` properties that logs may show."""

_SECRETS: Final = ("sasl.", "password", "secret", "pem", "token", "ssl.key", "proxy")
"""Parts of the names of properties whose values logs must not show."""


def milliseconds(seconds: float) -> int:
    """Convert seconds for librdkafka, to at least one millisecond."""
    return max(1, round(seconds * 1000))


def named(name: str) -> KafkaConfig:
    """Return the property that shows operators which process a client is of."""
    return {"client.id": name} if name else {}


def admin_config(options: OutboxSettings) -> KafkaConfig:
    """Return the properties of admin clients."""
    return {**DEFAULTS, **options.KAFKA}


def pipelined_config(options: OutboxSettings) -> KafkaConfig:
    """Properties of a producer with any number of records of a key in flight."""
    return {
        **producer_config(options),
        # Behind a record that the broker refuses for good, nothing more is sent.
        "enable.gapless.guarantee": True,
        # That does not hold for records that time out, so the relay watches the time.
        "message.timeout.ms": 0,
    }


def producer_config(
    options: OutboxSettings, own: KafkaConfig | None = None
) -> KafkaConfig:
    """
    Return the properties of a producer of records.

    Args:
        own: Defaults of this producer, below the project's properties.
    """
    return {
        **DEFAULTS,
        # Report a missing topic before its record times out.
        "topic.metadata.propagation.max.ms": milliseconds(
            min(UNKNOWN_TOPIC_TIMEOUT, options.DELIVERY_TIMEOUT / 2)
        ),
        # Batches form while earlier requests are in flight.
        "linger.ms": 0,
        **producer_limits(options),
        **(own or {}),
        **options.KAFKA,
        **options.PRODUCER_KAFKA,
        "acks": "all",
        "delivery.report.only.error": False,
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "message.timeout.ms": milliseconds(options.DELIVERY_TIMEOUT),
    }


_TELLS_OF_BROKEN_CONNECTIONS: Final[KafkaConfig] = {"log.connection.close": True}
"""Of clients that must not commit again after a connection broke during a commit."""


def transactional_config(
    options: OutboxSettings,
    shard: int,
    origin: int,
    *,
    turn: int = 0,
    shards: int = 1,
) -> KafkaConfig:
    """Return the properties of a transactional producer of a shard and a source."""
    name = f"{options.leader_group_of(origin)}.{shard}"
    if shards > 1:
        name = f"{name}-of-{shards}"
    # The broker refuses requests while it still ends the last transaction.
    own = {"retry.backoff.ms": 5}
    return {
        **producer_config(options, own),
        # The same ids in all clusters on this Kafka: each fences the one before it.
        "transactional.id": f"{name}.{turn + 1}" if turn else name,
        **_TELLS_OF_BROKEN_CONNECTIONS,
        # An open transaction of a dead leader hides later records from consumers
        # that read committed ones, until its successor opens or this time is over.
        "transaction.timeout.ms": milliseconds(2 * options.DELIVERY_TIMEOUT),
        # librdkafka must not repeat a request while its caller still waits.
        "socket.timeout.ms": min(
            milliseconds(2 * options.DELIVERY_TIMEOUT), LONGEST_SOCKET_TIMEOUT
        ),
    }


_READS_TO_THE_END: Final[KafkaConfig] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    # An answer without records shows the end of the partition: get it soon.
    "fetch.wait.max.ms": 10,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
}
"""Of consumers that read what a partition holds now."""


def ledger_consumer_config(options: OutboxSettings) -> KafkaConfig:
    """Return the properties of the consumer that reads the last ledger."""
    return {
        **DEFAULTS,
        **options.KAFKA,
        # Never joined: partitions are assigned by hand, nothing is committed.
        "group.id": options.leader_group,
        **_READS_TO_THE_END,
        # A nearby follower may not have the last ledger yet.
        "client.rack": "",
    }


def heartbeat_config(options: OutboxSettings) -> KafkaConfig:
    """Return the properties of the producer of NELI's heartbeats."""
    return {
        **DEFAULTS,
        # Candidates without a proof leave the group, and join it with new clients.
        **_KEEPS_BROKERS,
        **options.KAFKA,
        "acks": "all",
        "delivery.report.only.error": False,
        "linger.ms": 0,
        # An older heartbeat proves nothing: drop it unsent.
        "message.timeout.ms": milliseconds(options.HEARTBEAT_TIMEOUT),
    }


def consumer_config(options: OutboxSettings) -> KafkaConfig:
    """Return the properties of a member of the leader group."""
    return {
        **DEFAULTS,
        **options.KAFKA,
        "group.id": options.leader_group,
        # The arguments about sessions and fencing hold for this protocol only.
        "group.protocol": "classic",
        # A joining process must not take the partition from the leader.
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": milliseconds(options.SESSION_TIMEOUT),
        # Members learn of a rebalance with their next group heartbeat. Until all
        # have, the leader cannot prove itself: at least as often as by default.
        "heartbeat.interval.ms": milliseconds(
            min(options.HEARTBEAT_INTERVAL, options.HEARTBEAT_TIMEOUT / 5)
        ),
        "max.poll.interval.ms": milliseconds(options.MAX_POLL_INTERVAL),
        # A missing answer ends the connection; the proof of one leader at a time
        # relies on it.
        "socket.max.fails": 1,
        # Commits prove membership; nothing resumes from them.
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "latest",
        # An open transaction of another client must not hide heartbeats.
        "isolation.level": "read_uncommitted",
        "allow.auto.create.topics": False,
    }


def watch_config(options: OutboxSettings) -> KafkaConfig:
    """Return the properties of a consumer that observes the leader topic."""
    return {
        **DEFAULTS,
        **options.KAFKA,
        # Never joined: the partition is assigned by hand, nothing is committed.
        "group.id": options.leader_group,
        "enable.auto.commit": False,
        # Heartbeats may arrive in batches: fewer fetch requests.
        "fetch.min.bytes": 100_000,
        "queued.max.messages.kbytes": 1024,
        "auto.offset.reset": "latest",
        "isolation.level": "read_uncommitted",
        "allow.auto.create.topics": False,
    }


def reader_config(options: OutboxSettings) -> KafkaConfig:
    """Return the properties of a consumer that reads a topic to its end for people."""
    return {
        **DEFAULTS,
        **options.KAFKA,
        **options.CONSUMER_KAFKA,
        # Never joined: partitions are assigned by hand, nothing is committed.
        "group.id": options.leader_group if options.is_named else "outbox",
        **_READS_TO_THE_END,
    }


def group_config(options: OutboxSettings, group: str) -> KafkaConfig:
    """Return the properties of a consumer of `runconsumer`."""
    return {
        **DEFAULTS,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        # New topics and partitions are found after this long.
        "topic.metadata.refresh.interval.ms": 5000,
        "session.timeout.ms": milliseconds(options.SESSION_TIMEOUT),
        "heartbeat.interval.ms": milliseconds(options.SESSION_TIMEOUT / 6),
        # librdkafka's default, but at least a session.
        "max.poll.interval.ms": max(300_000, milliseconds(options.SESSION_TIMEOUT)),
        **options.KAFKA,
        **options.CONSUMER_KAFKA,
        "group.id": group,
        "group.protocol": "classic",
        # A joining process must not interrupt all others.
        "partition.assignment.strategy": "cooperative-sticky",
        # Offsets are committed after the effects.
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
    }


def transform_config(
    options: OutboxSettings, transactional_id: str, own: KafkaConfig | None = None
) -> KafkaConfig:
    """Return the properties of the producer of a transforming consumer."""
    config = producer_config(options, own)
    # A transaction left open by a crash blocks the successor for so long.
    longest = milliseconds(2 * max(options.SESSION_TIMEOUT, options.DELIVERY_TIMEOUT))
    return {
        **config,
        "transactional.id": transactional_id,
        **_TELLS_OF_BROKEN_CONNECTIONS,
        "transaction.timeout.ms": longest,
        "socket.timeout.ms": min(int(config["socket.timeout.ms"]), longest),
    }


def redacted(config: Mapping[str, Any]) -> KafkaConfig:
    """Copy a configuration map for logs, without credentials and callbacks."""
    return {
        key: "[hidden]" if is_secret(key) else value
        for key, value in config.items()
        if not callable(value)
    }


def is_secret(key: str) -> bool:
    """Whether logs and errors must hide the value of a property."""
    name = key.lower()
    return name not in _SHOWN and any(part in name for part in _SECRETS)
