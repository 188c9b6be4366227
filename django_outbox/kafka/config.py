"""
Turn the settings of an outbox into librdkafka's configuration maps.

`harvester/harvester.py` calls it and hands each map to the adapter that needs it. The
only module with milliseconds: everything else counts seconds.

A map is built in three layers: defaults that a project may override, the
project's own `KAFKA` (and `PRODUCER_KAFKA`) properties, and last the keys that
the promises rest on, which `settings/rules.py` refuses in the project's part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from ..settings.options import OutboxSettings

KafkaConfig: TypeAlias = dict[str, Any]
"""librdkafka properties by their own dotted names."""

UNKNOWN_TOPIC_TIMEOUT: Final = 3.0
"""Seconds for a topic to be created, by us or by the broker, before a record to
it fails; librdkafka's own default, 30, would outlast the delivery timeout."""

LONGEST_SOCKET_TIMEOUT: Final = 300_000
"""Milliseconds: librdkafka takes no more."""

DEFAULTS: Final[KafkaConfig] = {
    "client.id": "django-outbox",
    # A broker that comes back is used again within about a second.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "socket.keepalive.enable": True,
    # The socket's own delay would hold up single records and heartbeats.
    "socket.nagle.disable": True,
    # A connection that swallows requests is given up after this long.
    "socket.timeout.ms": 10_000,
}
"""Of every client, unless the project says otherwise."""

_SHOWN: Final = frozenset({"sasl.mechanism", "sasl.mechanisms"})
"""The only `sasl.` properties that a log may show."""

_SECRETS: Final = ("sasl.", "password", "secret", "pem", "token", "ssl.key", "proxy")
"""Parts of the names of properties whose values no log may show."""


def milliseconds(seconds: float) -> int:
    """Convert a duration for librdkafka, never down to zero."""
    return max(1, round(seconds * 1000))


def admin_config(options: OutboxSettings) -> KafkaConfig:
    """Properties of the client that looks after the leader topic."""
    return {**DEFAULTS, **options.KAFKA}


def producer_config(options: OutboxSettings) -> KafkaConfig:
    """Properties of the producer of records."""
    # Batches form by themselves while earlier requests are under way.
    return _producer_config(options, {"linger.ms": 0})


def _producer_config(options: OutboxSettings, own: KafkaConfig) -> KafkaConfig:
    """Lay a producer's own defaults below what the project says."""
    return {
        **DEFAULTS,
        # A topic that nobody has created is told before its record times out.
        "topic.metadata.propagation.max.ms": milliseconds(
            min(UNKNOWN_TOPIC_TIMEOUT, options.DELIVERY_TIMEOUT / 2)
        ),
        **own,
        **options.KAFKA,
        **options.PRODUCER_KAFKA,
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "message.timeout.ms": milliseconds(options.DELIVERY_TIMEOUT),
    }


def transactional_config(
    options: OutboxSettings, shard: int, origin: int | None = None
) -> KafkaConfig:
    """Properties of the producer of one shard's records, by default this cluster's."""
    origin = options.CLUSTER_ID if origin is None else origin
    own = {
        # Batches form while the rest of a transaction is produced; the flush at
        # its end does not wait for this.
        "linger.ms": 5,
        # The broker refuses what comes while it still ends the last transaction.
        "retry.backoff.ms": 5,
    }
    return {
        **_producer_config(options, own),
        # All clusters that share this Kafka take it over from each other.
        "transactional.id": f"{options.leader_group_of(origin)}.{shard}",
        # What a dead leader left open hides later records from readers of
        # committed ones, until its successor opens or this is over.
        "transaction.timeout.ms": milliseconds(2 * options.DELIVERY_TIMEOUT),
        # A request must not be repeated while its caller still waits.
        "socket.timeout.ms": min(
            milliseconds(2 * options.DELIVERY_TIMEOUT), LONGEST_SOCKET_TIMEOUT
        ),
    }


def ledger_consumer_config(options: OutboxSettings) -> KafkaConfig:
    """Properties of the consumer that reads the last ledger."""
    return {
        **DEFAULTS,
        **options.KAFKA,
        # Never joined: partitions are assigned by hand, nothing is committed.
        "group.id": options.leader_group,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        # The end of the partition is told by an answer without records: soon.
        "fetch.wait.max.ms": 10,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        # A follower near by may not have the last ledger yet.
        "client.rack": "",
    }


def heartbeat_config(options: OutboxSettings) -> KafkaConfig:
    """Properties of the producer of NELI's heartbeats."""
    return {
        **DEFAULTS,
        **options.KAFKA,
        "acks": "all",
        "linger.ms": 0,
        # An older heartbeat proves nothing any more: drop it unsent.
        "message.timeout.ms": milliseconds(options.HEARTBEAT_TIMEOUT),
    }


def consumer_config(options: OutboxSettings) -> KafkaConfig:
    """Properties of the consumer that is a member of the leader group."""
    return {
        **DEFAULTS,
        **options.KAFKA,
        "group.id": options.leader_group,
        # Sessions, rebalances and fencing are reasoned for this protocol only.
        "group.protocol": "classic",
        # A process that joins must not take the partition from the leader.
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": milliseconds(options.SESSION_TIMEOUT),
        # A member learns of a rebalance by its next group heartbeat, and until
        # all have, the leader can prove nothing: never less often than by default.
        "heartbeat.interval.ms": milliseconds(
            min(options.HEARTBEAT_INTERVAL, options.HEARTBEAT_TIMEOUT / 5)
        ),
        "max.poll.interval.ms": milliseconds(options.MAX_POLL_INTERVAL),
        # An answer that does not come ends the connection; the argument for one
        # leader at a time counts on it.
        "socket.max.fails": 1,
        # Commits are proofs of membership; nothing is ever resumed from them.
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "latest",
        # Somebody's open transaction must not hide heartbeats.
        "isolation.level": "read_uncommitted",
        "allow.auto.create.topics": False,
    }


def watch_config(options: OutboxSettings) -> KafkaConfig:
    """Properties of the consumer that hears who leads, and is no member."""
    return {
        **DEFAULTS,
        **options.KAFKA,
        # Never joined: the partition is assigned by hand, nothing is committed.
        "group.id": options.leader_group,
        "enable.auto.commit": False,
        # Heartbeats need not come one by one: this is how often it is asked for them.
        "fetch.min.bytes": 100_000,
        "queued.max.messages.kbytes": 1024,
        "auto.offset.reset": "latest",
        "isolation.level": "read_uncommitted",
        "allow.auto.create.topics": False,
    }


def group_config(options: OutboxSettings, group: str) -> KafkaConfig:
    """Properties of a consumer of `runconsumer`."""
    return {
        **DEFAULTS,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        # A topic, or a partition, that comes later is found after so long.
        "topic.metadata.refresh.interval.ms": 5000,
        "session.timeout.ms": milliseconds(options.SESSION_TIMEOUT),
        "heartbeat.interval.ms": milliseconds(options.SESSION_TIMEOUT / 6),
        # As the client has it by itself, which is never less than a session.
        "max.poll.interval.ms": max(300_000, milliseconds(options.SESSION_TIMEOUT)),
        **options.KAFKA,
        **options.CONSUMER_KAFKA,
        "group.id": group,
        "group.protocol": "classic",
        # A process that joins must not stop the work of all others.
        "partition.assignment.strategy": "cooperative-sticky",
        # Offsets follow the effects.
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
    }


def transform_config(options: OutboxSettings, transactional_id: str) -> KafkaConfig:
    """Properties of the producer of a consumer that only transforms."""
    config = producer_config(options)
    # What a crash leaves open holds up its successor for so long.
    longest = milliseconds(2 * max(options.SESSION_TIMEOUT, options.DELIVERY_TIMEOUT))
    return {
        **config,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": longest,
        "socket.timeout.ms": min(int(config["socket.timeout.ms"]), longest),
    }


def redacted(config: Mapping[str, Any]) -> KafkaConfig:
    """Copy a configuration map for a log: no credentials, keys or callbacks."""
    return {
        key: "[hidden]" if is_secret(key) else value
        for key, value in config.items()
        if not callable(value)
    }


def is_secret(key: str) -> bool:
    """Whether the value of a property is none that a log or an error may show."""
    name = key.lower()
    return name not in _SHOWN and any(part in name for part in _SECRETS)
