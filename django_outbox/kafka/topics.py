"""
See to it that the leader topic exists before a harvester joins its group.

`membership.py` calls it at each join. The topic holds nothing but heartbeats
of the last seconds, so it may be created, and expire, without a second
thought; the ledger and the users' topics are none of its business.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError as DriverError
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ..exceptions import KafkaUnavailable, LeaderTopicMissing
from .config import KafkaConfig, milliseconds
from .logs import CLIENT_LOG

if TYPE_CHECKING:
    from confluent_kafka.admin._topic import TopicDescription

logger = logging.getLogger(__name__)

RETENTION: Final = 3600.0
"""Seconds for which heartbeats stay, for people who look into a topic."""

_PAUSE: Final = 0.1
"""Seconds between two looks at a topic that is coming up."""

_DENIED: Final = frozenset(
    {
        DriverError.TOPIC_AUTHORIZATION_FAILED,
        DriverError.CLUSTER_AUTHORIZATION_FAILED,
        DriverError.POLICY_VIOLATION,
        DriverError.INVALID_REPLICATION_FACTOR,
    }
)
"""Refusals of a creation that a person has to deal with."""


def ensure_leader_topic(
    config: KafkaConfig,
    *,
    topic: str,
    partitions: int = 1,
    may_create: bool = True,
    timeout: float = 2.0,
) -> None:
    """
    Return when the topic exists and each partition that is needed has a leader.

    Args:
        config: of the admin client; see `config.admin_config`.
        topic: the leader topic.
        partitions: how many it must have at least: one a shard.
        may_create: whether to create it when it is missing.
        timeout: seconds after which a silent cluster counts as away.

    Raises:
        LeaderTopicMissing: with the command line that makes it right.
        KafkaUnavailable: call again later.
    """
    client_config: KafkaConfig = {**config, "logger": CLIENT_LOG}
    admin = AdminClient(client_config)
    deadline = time.monotonic() + timeout
    has_asked = False
    while True:
        description = _describe(admin, topic, deadline)
        if description is not None and len(description.partitions) < partitions:
            raise LeaderTopicMissing(
                f"The leader topic {topic!r} has {len(description.partitions)} "
                f"partitions, {partitions} are needed. Add them: "
                + _command("--alter", topic, partitions, config)
            )
        if description is not None and _is_up(description, partitions):
            _warn_of_more(description, partitions)
            return
        if description is None and not has_asked:
            if not may_create:
                raise _missing(topic, partitions, config, "may not be attempted")
            _create(admin, topic, partitions, config, deadline)
            has_asked = True
        if time.monotonic() > deadline:
            raise KafkaUnavailable(f"The leader topic {topic!r} has no leader yet.")
        time.sleep(_PAUSE)


def _describe(admin: AdminClient, topic: str, deadline: float) -> Any:
    """Return the topic's `TopicDescription`, or None when there is no such topic."""
    left = max(0.1, deadline - time.monotonic())
    futures = admin.describe_topics(TopicCollection([topic]), request_timeout=left)
    try:
        return _result(futures[topic], left)
    except KafkaException as error:
        if error.args[0].code() == DriverError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise KafkaUnavailable(
            f"The leader topic {topic!r} cannot be looked up: {error.args[0].str()}."
        ) from error


def _warn_of_more(description: TopicDescription, partitions: int) -> None:
    if len(description.partitions) > partitions:
        logger.warning(
            "The leader topic %s has %d partitions, %d would do: the group balances "
            "them, so that a process that joins may take leadership over",
            description.name,
            len(description.partitions),
            partitions,
            extra={"action": "check_topic"},
        )


def _is_up(description: TopicDescription, partitions: int) -> bool:
    # librdkafka reports a missing leader as a node with the id -1, or as None.
    leaders = [p.leader for p in description.partitions[:partitions]]
    return all(leader is not None and leader.id >= 0 for leader in leaders)


def _create(
    admin: AdminClient,
    topic: str,
    partitions: int,
    config: KafkaConfig,
    deadline: float,
) -> None:
    """Create the topic, unless another process was faster."""
    retention = str(milliseconds(RETENTION))
    new = NewTopic(
        topic,
        num_partitions=partitions,
        replication_factor=-1,
        config={
            "cleanup.policy": "delete",
            "retention.ms": retention,
            "segment.ms": retention,
        },
    )
    left = max(0.1, deadline - time.monotonic())
    futures = admin.create_topics([new], request_timeout=left, operation_timeout=left)
    try:
        _result(futures[topic], left)
    except KafkaException as error:
        code, text = error.args[0].code(), error.args[0].str()
        if code in _DENIED:
            raise _missing(
                topic, partitions, config, f"was refused ({text})"
            ) from error
        if code != DriverError.TOPIC_ALREADY_EXISTS:
            raise KafkaUnavailable(
                f"The leader topic {topic!r} cannot be created now: {text}."
            ) from error
    else:
        logger.info(
            "Created the leader topic %s", topic, extra={"action": "create_topic"}
        )


def _result(future: Future[Any], timeout: float) -> Any:
    try:
        return future.result(timeout + 0.5)
    except FutureTimeout as error:
        raise KafkaUnavailable from error


def _missing(
    topic: str, partitions: int, config: KafkaConfig, why: str
) -> LeaderTopicMissing:
    command = _command("--create", topic, partitions, config)
    return LeaderTopicMissing(
        f"The leader topic {topic!r} does not exist and its creation {why}. "
        f"Create it: {command}"
    )


def _command(verb: str, topic: str, partitions: int, config: KafkaConfig) -> str:
    servers = config.get("bootstrap.servers", "localhost:9092")
    command = (
        f"kafka-topics.sh --bootstrap-server {servers} {verb} --topic {topic} "
        f"--partitions {partitions}"
    )
    if verb == "--create":
        command += f" --config retention.ms={milliseconds(RETENTION)}"
    return command
