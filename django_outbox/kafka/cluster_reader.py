"""
Reads the configuration of topics and brokers, and who leads an outbox.

Every request has a time-out. A right that is missing hides a part of the answer,
and the answer says which; only an outage is an error.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import KafkaError as DriverError
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.admin._listoffsets import OffsetSpec

from ..election.ports import Heartbeat
from ..exceptions import KafkaUnavailable
from ..settings.kafka_rules import servers_of
from ..settings.options import OutboxSettings
from . import heartbeats
from .client_errors import ClientErrors
from .clients import answer_of, make, serve
from .config import KafkaConfig, admin_config, named, watch_config
from .partitions import FIRST, first_and_end
from .topic_facts import BROKER, ClusterFacts, PartitionFacts, TopicFacts

REQUEST_TIMEOUT: Final = 5.0
"""Seconds for one request to the cluster."""

TAIL_RECORDS: Final = 200
"""Records at the end of the leader topic that are read: several seconds of heartbeats,
also of two leaders."""

_OLDEST: Final[OffsetSpec] = OffsetSpec.for_timestamp(0)
"""The first record with a time: all have one."""

_MISSING: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})
_DENIED: Final = frozenset(
    {
        *("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"),
        *("UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE"),
        *("LEADER_NOT_AVAILABLE", "_UNKNOWN_PARTITION"),
    }
)
"""Errors that hide one part of the answer, and leave the rest."""


class ClusterReader:
    """Looks at the Kafka of one outbox; for one thread."""

    def __init__(self, options: OutboxSettings, *, name: str = "") -> None:
        config = admin_config(options) | named(name)
        self._errors = ClientErrors("doctor", action="doctor", config=config)
        self._config: KafkaConfig = {**config, **self._errors.callbacks}

    def read(
        self, topics: Collection[str], *, measured: Collection[str] = ()
    ) -> ClusterFacts:
        """
        Describe the cluster and these topics.

        Args:
            topics: valid names.
            measured: those whose offsets are read, too.

        Raises:
            KafkaUnavailable: no answer came.
        """
        admin = make(AdminClient, self._config)
        try:
            facts = self._read(admin, sorted({*topics}), measured)
        except KafkaException as error:
            serve(admin)
            raise self._errors.unavailable("Cannot read the cluster", error) from error
        self._errors.recovered()
        return facts

    def recent_heartbeats(
        self, options: OutboxSettings, *, within: float
    ) -> Sequence[Heartbeat]:
        """
        Return the heartbeats that were written in the last seconds.

        There are none where the topic does not exist or cannot be read.

        Args:
            options: with the names of the election.
            within: seconds, by the clocks of this host and of the leader's.

        Raises:
            KafkaUnavailable: the client could not be created.
        """
        config = watch_config(options) | self._errors.callbacks
        # No fetch must wait for more records.
        config |= {
            "enable.partition.eof": True,
            "fetch.min.bytes": 1,
            "fetch.wait.max.ms": 10,
        }
        with closing(make(Consumer, config)) as consumer:
            try:
                return list(
                    _tail(consumer, options.leader_topic, since=time.time() - within)
                )
            except KafkaException:
                serve(consumer)
                return ()

    def _read(
        self, admin: AdminClient, topics: Sequence[str], measured: Collection[str]
    ) -> ClusterFacts:
        unseen: dict[str, str] = {}
        cluster = answer_of(
            admin.describe_cluster(request_timeout=REQUEST_TIMEOUT), REQUEST_TIMEOUT
        )
        brokers = [node.id for node in cluster.nodes]
        described = self._described(admin, topics, unseen)
        there = [name for name in topics if described.get(name) is not None]
        configs = self._configs(admin, there, brokers[:1], unseen)
        sizes = {name: _partitions(described[name]) for name in there}
        for name in {*measured} & {*there}:
            sizes[name] = self._measured(admin, name, sizes[name], unseen)
        return ClusterFacts(
            servers=servers_of(self._config),
            brokers=len(brokers),
            settings=configs.get(""),
            topics={
                name: TopicFacts(
                    name=name,
                    exists=name in sizes,
                    partitions=sizes.get(name, ()),
                    settings=configs.get(name),
                )
                for name in described
            },
            unseen=unseen,
        )

    def _described(
        self, admin: AdminClient, topics: Sequence[str], unseen: dict[str, str]
    ) -> dict[str, Any]:
        """Return the description of each topic, None of a missing one."""
        if not topics:
            return {}
        found: dict[str, Any] = {}
        asked = admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT
        )
        for name, future in asked.items():
            try:
                found[name] = answer_of(future, REQUEST_TIMEOUT)
            except KafkaException as error:
                if error.args[0].name() in _MISSING:
                    found[name] = None
                else:
                    _note(unseen, f"topic {name}", error)
        return found

    def _configs(
        self,
        admin: AdminClient,
        topics: Sequence[str],
        brokers: Sequence[int],
        unseen: dict[str, str],
    ) -> dict[str, Mapping[str, str]]:
        """Return configurations by topic, that of the broker under an empty name."""
        wanted = {
            ConfigResource(ResourceType.TOPIC, name): (
                name,
                f"settings of topic {name}",
            )
            for name in topics
        }
        for broker in brokers:
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            wanted[resource] = ("", BROKER)
        found: dict[str, Mapping[str, str]] = {}
        asked = admin.describe_configs(list(wanted), request_timeout=REQUEST_TIMEOUT)
        for resource, future in asked.items():
            name, what = wanted[resource]
            try:
                entries = answer_of(future, REQUEST_TIMEOUT)
            except KafkaException as error:
                _note(unseen, what, error)
            else:
                found[name] = {k: str(e.value or "") for k, e in entries.items()}
        return found

    def _measured(
        self,
        admin: AdminClient,
        topic: str,
        partitions: Sequence[PartitionFacts],
        unseen: dict[str, str],
    ) -> Sequence[PartitionFacts]:
        """Add the first offset, and the time of the first record."""
        places = [TopicPartition(topic, number) for number in range(len(partitions))]
        answers = []
        try:
            for spec in (FIRST, _OLDEST):
                asked = admin.list_offsets(
                    dict.fromkeys(places, spec), request_timeout=REQUEST_TIMEOUT
                )
                found = {
                    at.partition: answer_of(future, REQUEST_TIMEOUT)
                    for at, future in asked.items()
                }
                answers.append([found[place.partition] for place in places])
        except KafkaException as error:
            _note(unseen, f"offsets of topic {topic}", error)
            return partitions
        return [
            PartitionFacts(
                replicas=partition.replicas,
                in_sync=partition.in_sync,
                first_offset=first.offset,
                first_at=oldest.timestamp / 1000 if oldest.timestamp >= 0 else None,
            )
            for partition, first, oldest in zip(partitions, *answers, strict=True)
        ]


def _partitions(description: Any) -> Sequence[PartitionFacts]:
    return [
        PartitionFacts(replicas=len(one.replicas), in_sync=len(one.isr))
        for one in sorted(description.partitions, key=lambda one: int(one.id))
    ]


def _note(unseen: dict[str, str], what: str, error: KafkaException) -> None:
    """Note what is hidden; raise an error that hides everything."""
    cause = error.args[0]
    if cause.name() not in _DENIED:
        raise error
    unseen[what] = f"{cause.str()} ({cause.name()})"


def _tail(consumer: Consumer, topic: str, *, since: float) -> Iterator[Heartbeat]:
    place = TopicPartition(topic, 0)
    low, high = first_and_end(consumer, place, timeout=REQUEST_TIMEOUT)
    if low >= high:
        return
    consumer.assign([TopicPartition(topic, 0, max(low, high - TAIL_RECORDS))])
    deadline = time.monotonic() + REQUEST_TIMEOUT
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.code() == DriverError._PARTITION_EOF:
                return
            raise KafkaException(error)
        _, milliseconds = message.timestamp()
        if milliseconds / 1000 >= since and (beat := heartbeats.read(message)):
            yield beat
        # Others may be coming faster than the client meets the end.
        if (message.offset() or 0) + 1 >= high:
            return
    raise KafkaUnavailable("The leader topic could not be read to its end in time.")
