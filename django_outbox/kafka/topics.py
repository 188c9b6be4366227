"""
Ensures that the outbox's own topics exist; users' topics are not touched.

The leader topic holds only heartbeats of the last seconds, so its messages may
expire; of the ledger topic only the last record of each key counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import KafkaError as DriverError
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ..exceptions import KafkaUnavailable, TopicMissing
from ..settings.kafka_rules import servers_of
from ..settings.options import OutboxSettings
from .client_errors import ClientErrors
from .clients import answer_of, make, serve
from .config import KafkaConfig, milliseconds
from .topic_facts import LEDGER_SEGMENT_BYTES

if TYPE_CHECKING:
    from confluent_kafka.admin._topic import TopicDescription

logger = logging.getLogger(__name__)


class OwnTopic(NamedTuple):
    """A topic that the harvesters need, and how it is created."""

    kind: str
    """Its name in texts for people."""
    name: str
    partitions: int
    """How many it needs at least: one for each shard."""
    settings: Mapping[str, str]
    """The topic's configuration, by Kafka's names."""
    replicas: int | None = None
    """Replicas of each partition; None: the broker's default."""
    is_balanced: bool = False
    """Whether a consumer group assigns its partitions, so that more of them matter."""


def leader_topic(options: OutboxSettings) -> OwnTopic:
    """Describe the topic of NELI's heartbeats."""
    settings = {
        "cleanup.policy": "delete",
        "retention.ms": str(milliseconds(HEARTBEAT_RETENTION)),
        "segment.ms": str(milliseconds(HEARTBEAT_RETENTION)),
    }
    topic = _own_topic("leader topic", options.leader_topic, settings, options)
    return topic._replace(is_balanced=True)


def ledger_topic(options: OutboxSettings, origin: int) -> OwnTopic:
    """Describe the ledger topic of a cluster."""
    settings = {
        "cleanup.policy": "compact",
        # Only the last ledger counts: compact early.
        "segment.bytes": str(LEDGER_SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.1",
    }
    name = options.ledger_topic_of(origin)
    return _own_topic("ledger topic", name, settings, options)


def _own_topic(
    kind: str, name: str, settings: Mapping[str, str], options: OutboxSettings
) -> OwnTopic:
    """Add what is the same for both topics."""
    if options.TOPIC_MIN_INSYNC_REPLICAS is not None:
        in_sync = str(options.TOPIC_MIN_INSYNC_REPLICAS)
        settings = {**settings, "min.insync.replicas": in_sync}
    replicas = options.TOPIC_REPLICATION_FACTOR
    return OwnTopic(kind, name, options.SHARDS, settings, replicas)


HEARTBEAT_RETENTION: Final = 3600.0
"""Seconds for which heartbeats are retained, for people who debug."""

_LOOKUP_INTERVAL: Final = 0.1
"""Seconds between two look-ups of a topic that is not ready yet."""

_DENIED: Final = frozenset(
    {
        DriverError.TOPIC_AUTHORIZATION_FAILED,
        DriverError.CLUSTER_AUTHORIZATION_FAILED,
        DriverError.POLICY_VIOLATION,
        DriverError.INVALID_REPLICATION_FACTOR,
    }
)
"""Errors of a creation that only an administrator can resolve."""


def ensure_topic(
    config: KafkaConfig,
    topic: OwnTopic,
    *,
    may_create: bool = True,
    timeout: float = 2.0,
) -> int:
    """
    Return the topic's partitions once each that is needed has a leader.

    Args:
        config: properties of an admin client.
        may_create: whether to create the topic, or partitions that it lacks.
        timeout: seconds after which the cluster counts as unavailable.

    Raises:
        TopicMissing: an administrator must act; the text has the command line.
        KafkaUnavailable: call again later.
    """
    errors = ClientErrors(topic.kind, action="check_topic", config=config)
    client_config: KafkaConfig = {**config, **errors.callbacks}
    admin = make(AdminClient, client_config)
    try:
        partitions = _ensure(
            admin, topic, config, may_create=may_create, timeout=timeout
        )
    except KafkaException as error:
        serve(admin)
        what = f"Cannot look up or create the {topic.kind} {topic.name!r}"
        raise errors.unavailable(what, error) from error
    errors.recovered()
    return partitions


def _ensure(
    admin: AdminClient,
    topic: OwnTopic,
    config: KafkaConfig,
    *,
    may_create: bool,
    timeout: float,
) -> int:
    deadline = time.monotonic() + timeout
    has_asked = False
    while True:
        description = _describe(admin, topic, deadline)
        found = 0 if description is None else len(description.partitions)
        if found >= topic.partitions and _is_up(description, topic.partitions):
            if topic.is_balanced and found > topic.partitions:
                _warn_of_more(topic, found)
            return found
        if found < topic.partitions and not has_asked:
            if not may_create:
                why = "creating it is disabled (CREATE_LEADER_TOPIC)"
                raise _missing(topic, config, why, found=found)
            create = _add_partitions if found else _create
            create(admin, topic, config, deadline)
            has_asked = True
        if time.monotonic() > deadline:
            raise KafkaUnavailable(
                f"The {topic.kind} {topic.name!r} has no leader yet."
            )
        time.sleep(_LOOKUP_INTERVAL)


def _describe(admin: AdminClient, topic: OwnTopic, deadline: float) -> Any:
    """Return the topic's `TopicDescription`, or None if it does not exist."""
    left = max(0.1, deadline - time.monotonic())
    futures = admin.describe_topics(TopicCollection([topic.name]), request_timeout=left)
    try:
        return answer_of(futures[topic.name], left)
    except KafkaException as error:
        if error.args[0].code() == DriverError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def _warn_of_more(topic: OwnTopic, found: int) -> None:
    logger.warning(
        "The leader topic %s has %d partitions but needs only %d: the group balances "
        "them, so leadership may move when a process joins",
        topic.name,
        found,
        topic.partitions,
        extra={"action": "check_topic"},
    )


def _is_up(description: TopicDescription, partitions: int) -> bool:
    # librdkafka reports a missing leader as a node with the id -1, or as None.
    leaders = [p.leader for p in description.partitions[:partitions]]
    return all(leader is not None and leader.id >= 0 for leader in leaders)


def _create(
    admin: AdminClient, topic: OwnTopic, config: KafkaConfig, deadline: float
) -> None:
    """Create the topic, unless another process created it first."""
    new = NewTopic(
        topic.name,
        num_partitions=topic.partitions,
        # -1 is the broker's default.
        replication_factor=-1 if topic.replicas is None else topic.replicas,
        config=dict(topic.settings),
    )
    left = max(0.1, deadline - time.monotonic())
    futures = admin.create_topics([new], request_timeout=left, operation_timeout=left)
    with _refusals(topic, config, "creating it", DriverError.TOPIC_ALREADY_EXISTS):
        answer_of(futures[topic.name], left)
        logger.info(
            "Created the %s %s",
            topic.kind,
            topic.name,
            extra={"action": "create_topic"},
        )


def _add_partitions(
    admin: AdminClient, topic: OwnTopic, config: KafkaConfig, deadline: float
) -> None:
    """Add partitions for more shards, unless another process added them first."""
    left = max(0.1, deadline - time.monotonic())
    futures = admin.create_partitions(
        [NewPartitions(topic.name, topic.partitions)],
        request_timeout=left,
        operation_timeout=left,
    )
    is_done = DriverError.INVALID_PARTITIONS
    with _refusals(topic, config, "adding some", is_done, found=1):
        answer_of(futures[topic.name], left)
        logger.info(
            "The %s %s has %d partitions now",
            topic.kind,
            topic.name,
            topic.partitions,
            extra={"action": "create_topic"},
        )


@contextmanager
def _refusals(
    topic: OwnTopic, config: KafkaConfig, what: str, is_done: int, *, found: int = 0
) -> Iterator[None]:
    """Explain a refusal; `is_done` is the code when another process was faster."""
    try:
        yield
    except KafkaException as error:
        code, text = error.args[0].code(), error.args[0].str()
        if code in _DENIED:
            why = f"{what} was refused ({text})"
            raise _missing(topic, config, why, found=found) from error
        if code != is_done:
            raise


def _missing(
    topic: OwnTopic, config: KafkaConfig, why: str, *, found: int = 0
) -> TopicMissing:
    """Say what an administrator must do; `found` partitions exist."""
    name = f"The {topic.kind} {topic.name!r}"
    if found:
        return TopicMissing(
            f"{name} has fewer partitions than the {topic.partitions} that it needs, "
            f"and {why}. Add them: {_command('--alter', topic, config)}"
        )
    return TopicMissing(
        f"{name} does not exist, and {why}. "
        f"Create it: {_command('--create', topic, config)}"
    )


def _command(verb: str, topic: OwnTopic, config: KafkaConfig) -> str:
    servers = servers_of(config)
    command = (
        f"kafka-topics.sh --bootstrap-server {servers} {verb} --topic {topic.name} "
        f"--partitions {topic.partitions}"
    )
    if verb == "--create":
        if topic.replicas is not None:
            command += f" --replication-factor {topic.replicas}"
        for name, value in topic.settings.items():
            command += f" --config {name}={value}"
    return command
