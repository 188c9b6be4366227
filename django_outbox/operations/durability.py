"""
Whether a topic keeps what Kafka has acknowledged.

A topic is durable with at least three replicas, `min.insync.replicas` of at least
two and without unclean leader election: then any one broker may be lost for good,
and what was acknowledged is on another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from ..kafka.topic_facts import BROKER, ClusterFacts, PartitionFacts, TopicFacts
from ..settings.options import OutboxSettings
from ..wording import count
from .finding import Finding
from .finding_kinds import (
    MIN_INSYNC_REPLICAS,
    NO_SPARE_REPLICA,
    OUT_OF_SYNC,
    REPLICATION_FACTOR,
    UNCLEAN_ELECTION,
)

REPLICAS: Final = 3
"""Replicas of a durable topic."""

IN_SYNC: Final = 2
"""The least `min.insync.replicas` of a durable topic."""

ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"


def durability_findings(
    topic: TopicFacts, cluster: ClusterFacts, *, is_own: bool = False
) -> Iterator[Finding]:
    """
    Yield why a topic is not durable.

    Args:
        topic: it exists, or its creation is planned.
        cluster: where it is, for the cure.
        is_own: whether the harvester creates it.
    """
    subject = f"topic {topic.name}"
    is_planned_own = is_own and not topic.exists
    when = "" if topic.exists else " (once it is created)"
    if topic.partitions and topic.replicas < REPLICAS:
        yield Finding(
            kind=REPLICATION_FACTOR,
            subject=subject,
            seen=f"{count(topic.replicas, 'replica')}, {REPLICAS} needed{when}",
            cure=f"set TOPIC_REPLICATION_FACTOR = {REPLICAS}"
            if is_planned_own
            else more_replicas(topic, cluster),
        )
    if topic.settings is None:
        return
    in_sync = topic.number(ISR, 1)
    if in_sync < IN_SYNC:
        has_few = topic.exists and topic.replicas < IN_SYNC
        first = "with more replicas: " if has_few else ""
        yield Finding(
            kind=MIN_INSYNC_REPLICAS,
            subject=subject,
            seen=f"{ISR} = {in_sync}, {IN_SYNC} needed{when}",
            cure=f"set TOPIC_MIN_INSYNC_REPLICAS = {IN_SYNC}"
            if is_planned_own
            else first + altered(topic, cluster, f"{ISR}={IN_SYNC}"),
        )
    if topic.text(UNCLEAN) == "true":
        yield Finding(
            kind=UNCLEAN_ELECTION,
            subject=subject,
            seen=f"{UNCLEAN} = true{when}",
            cure=f"set {UNCLEAN}=false on the brokers"
            if is_planned_own
            else altered(topic, cluster, f"{UNCLEAN}=false"),
        )


def availability_findings(
    topic: TopicFacts, cluster: ClusterFacts
) -> Iterator[Finding]:
    """Yield what keeps an existing topic from surviving the loss of a broker."""
    subject = f"topic {topic.name}"
    in_sync = topic.number(ISR, 1)
    if topic.settings is not None and in_sync >= max(topic.replicas, IN_SYNC):
        yield Finding(
            kind=NO_SPARE_REPLICA,
            subject=subject,
            seen=f"{ISR} = {in_sync} of {count(topic.replicas, 'replica')}",
            cure=more_replicas(topic, cluster)
            if topic.replicas < REPLICAS
            else altered(topic, cluster, f"{ISR}={IN_SYNC}"),
        )
    behind = sum(p.in_sync < p.replicas for p in topic.partitions)
    if behind:
        yield Finding(
            kind=OUT_OF_SYNC,
            subject=subject,
            seen=f"{behind} of {count(len(topic.partitions), 'partition')} have"
            " replicas that are not in sync",
            cure="repair the broker that is away or slow: kafka-topics.sh"
            f" --bootstrap-server {cluster.servers} --describe"
            " --under-replicated-partitions",
        )


def planned(
    topic: TopicFacts, cluster: ClusterFacts, options: OutboxSettings | None
) -> TopicFacts | None:
    """
    Return a missing topic as its creation would make it.

    None if nothing creates it, or if the defaults of the broker are unknown.

    Args:
        topic: the missing topic.
        cluster: the broker's defaults.
        options: of the outbox, for one of its own topics; None: a topic of records.
    """
    may_create = (
        options.CREATE_LEADER_TOPIC
        if options
        else cluster.text("auto.create.topics.enable") == "true"
    )
    if not may_create or cluster.settings is None:
        return None
    replicas = options.TOPIC_REPLICATION_FACTOR if options else None
    in_sync = options.TOPIC_MIN_INSYNC_REPLICAS if options else None
    if replicas is None:
        replicas = cluster.number("default.replication.factor", 1)
    if in_sync is None:
        in_sync = cluster.number(ISR, 1)
    return replace(
        topic,
        partitions=[PartitionFacts(replicas=replicas, in_sync=replicas)],
        settings={ISR: str(in_sync), UNCLEAN: cluster.text(UNCLEAN)},
    )


def refusal(
    cluster: ClusterFacts, options: OutboxSettings, own: Collection[str]
) -> str:
    """
    Return one line that names the first topic that is not durable, and the cure.

    Empty if all topics are durable. A topic whose settings this process may not read
    is not proven to be.

    Args:
        cluster: with the outbox's own topics and those of its waiting records.
        options: of the outbox.
        own: the names of its own topics.
    """
    is_complete = all(topic.exists for topic in cluster.topics.values())
    for name, why in cluster.unseen.items():
        if is_complete and name == BROKER:
            # Its defaults matter only to topics that do not exist yet.
            continue
        return (
            f"REQUIRE_DURABLE_TOPICS: cannot read the {name}: {why}. Allow this client"
            " to DESCRIBE the topics and to DESCRIBE_CONFIGS of topics and cluster."
        )
    for name, topic in sorted(cluster.topics.items()):
        is_own = name in own
        facts = (
            topic
            if topic.exists
            else planned(topic, cluster, options if is_own else None)
        )
        if facts is None:
            # Nothing is sent to a topic that does not exist.
            continue
        for finding in durability_findings(facts, cluster, is_own=is_own):
            return (
                f"REQUIRE_DURABLE_TOPICS: the {finding.subject} is not durable: "
                f"{finding.seen}. Cure: {finding.cure}"
            )
    return ""


def altered(topic: TopicFacts, cluster: ClusterFacts, setting: str) -> str:
    """Return the command that sets one setting of a topic, or creates a missing one."""
    if not topic.exists:
        return created(topic, cluster)
    return (
        f"kafka-configs.sh --bootstrap-server {cluster.servers} --alter"
        f" --entity-type topics --entity-name {topic.name} --add-config {setting}"
    )


def more_replicas(topic: TopicFacts, cluster: ClusterFacts) -> str:
    """Return what gives a topic enough replicas, or creates a missing one."""
    first = ""
    if cluster.brokers < REPLICAS:
        first = f"run {REPLICAS} brokers (now {cluster.brokers}), then "
    if not topic.exists:
        return first + created(topic, cluster)
    return (
        f"{first}kafka-reassign-partitions.sh --bootstrap-server {cluster.servers}"
        f" --execute --reassignment-json-file FILE, with {REPLICAS} brokers for each"
        f" partition of {topic.name} in FILE"
    )


def created(topic: TopicFacts, cluster: ClusterFacts) -> str:
    """Return the command that creates a durable topic."""
    return (
        f"kafka-topics.sh --bootstrap-server {cluster.servers} --create --topic"
        f" {topic.name} --replication-factor {REPLICAS} --config {ISR}={IN_SYNC}"
        f" --config {UNCLEAN}=false"
    )
