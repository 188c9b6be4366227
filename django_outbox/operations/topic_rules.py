"""What the settings of topics and brokers cost consumers and producers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..kafka.topic_facts import LEDGER_SEGMENT_BYTES, ClusterFacts, TopicFacts
from ..postgres.database_facts import WaitingTopic
from ..wording import count, duration
from . import finding_kinds as kinds
from .durability import IN_SYNC, ISR, REPLICAS, altered, created, more_replicas
from .finding import Finding

LEDGER_BYTES: Final = 1_000_000
"""Largest ledger of a transaction, rounded up."""

DIRTY_RATIO: Final = "min.cleanable.dirty.ratio"
MAX_DIRTY_RATIO: Final = 0.5
"""Kafka's default; the ledger topic is created with less."""

STOCK_MESSAGE_BYTES: Final = 1_048_588
"""Kafka's default of `max.message.bytes`."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""Kafka's own topics, which exist once they are used."""


def record_topic_findings(
    topic: TopicFacts, cluster: ClusterFacts, *, longest_stop: float, largest: int
) -> Iterator[Finding]:
    """
    Check a topic of records, or of dead letters.

    Args:
        topic: it exists.
        cluster: where it is, for the cure.
        longest_stop: seconds for which a consumer may stop.
        largest: bytes of the largest message that `stash()` accepts.
    """
    if topic.settings is None:
        return
    subject = f"topic {topic.name}"
    policy = topic.text("cleanup.policy")
    kept = topic.number("retention.ms", -1)
    if "delete" in policy and 0 <= kept < longest_stop * 1000:
        yield Finding(
            kind=kinds.RETENTION,
            subject=subject,
            seen=f"retention.ms = {kept} ({duration(kept / 1000)}), and a consumer may"
            f" stop for {duration(longest_stop)}",
            cure=altered(topic, cluster, f"retention.ms={round(longest_stop * 1000)}"),
        )
    size = topic.number("retention.bytes", -1)
    if "delete" in policy and size >= 0:
        yield Finding(
            kind=kinds.RETENTION_BYTES,
            subject=subject,
            seen=f"retention.bytes = {size}",
            cure=altered(topic, cluster, "retention.bytes=-1"),
        )
    if "compact" in policy:
        yield Finding(
            kind=kinds.TOPIC_COMPACTED,
            subject=subject,
            seen=f"cleanup.policy = {policy}",
            cure="unless consumers need only the last message of a key: "
            + altered(topic, cluster, "cleanup.policy=delete"),
        )
    yield from _size_findings(topic, cluster, largest)


def ledger_findings(topic: TopicFacts, cluster: ClusterFacts) -> Iterator[Finding]:
    """Check an existing ledger topic, which has to keep the last record of each key."""
    if topic.settings is None:
        return
    subject = f"topic {topic.name}"
    policy = topic.text("cleanup.policy")
    if policy != "compact":
        yield Finding(
            kind=kinds.LEDGER_CLEANUP,
            subject=subject,
            seen=f"cleanup.policy = {policy}, compact needed",
            cure=altered(topic, cluster, "cleanup.policy=compact"),
        )
    segment = topic.number("segment.bytes", LEDGER_SEGMENT_BYTES)
    ratio = float(topic.text(DIRTY_RATIO) or 0)
    if segment > LEDGER_SEGMENT_BYTES or ratio > MAX_DIRTY_RATIO:
        wanted = f"segment.bytes={LEDGER_SEGMENT_BYTES},{DIRTY_RATIO}=0.1"
        yield Finding(
            kind=kinds.LEDGER_COMPACTION,
            subject=subject,
            seen=f"segment.bytes = {segment}, {DIRTY_RATIO} = {ratio:g}",
            cure=altered(topic, cluster, wanted),
        )
    yield from _size_findings(topic, cluster, LEDGER_BYTES)


def missing_findings(
    topic: TopicFacts, cluster: ClusterFacts, waiting: WaitingTopic | None
) -> Iterator[Finding]:
    """
    Report a topic that does not exist, and that nothing creates.

    Args:
        topic: it does not exist.
        cluster: where it should be.
        waiting: the records that wait for it.
    """
    seen = "the topic does not exist"
    if waiting:
        seen += f" (waiting: {count(waiting.records, 'record')})"
    yield Finding(
        kind=kinds.TOPIC_MISSING,
        subject=f"topic {topic.name}",
        seen=seen,
        cure=created(topic, cluster),
    )


def growth_findings(topic: TopicFacts, waiting: WaitingTopic) -> Iterator[Finding]:
    """
    Report partitions that look younger than the oldest record that waits.

    New partitions get the highest numbers and begin at offset 0. So partitions at
    the end that have no record, or only records that are younger than the oldest
    waiting one, behind partitions that all had records before it, are probably new.
    """
    since = waiting.oldest_at
    if since is None:
        return
    partitions = topic.partitions
    old = 0
    for partition in partitions:
        is_old = bool(partition.first_offset) or (
            partition.first_at is not None and partition.first_at < since
        )
        if not is_old:
            break
        old += 1
    young = partitions[old:]
    is_young = all(p.first_offset == 0 for p in young)
    if not old or not young or not is_young:
        return
    has_older = any(p.first_at is not None and p.first_at < since for p in young)
    if has_older:
        return
    names = f"partitions {old} to {len(partitions) - 1} have"
    if len(young) == 1:
        names = f"partition {old} has"
    yield Finding(
        kind=kinds.PARTITION_GROWTH,
        subject=f"topic {topic.name}",
        seen=f"{names} no record from before the oldest waiting one (waiting:"
        f" {count(waiting.records, 'record')})",
        cure="if these partitions are new, let consumers read the others to their end"
        " first; the next time stop writers, drain (runharvester --drain), wait for"
        " consumers, add partitions, restart the harvesters, then the writers",
    )


def broker_findings(
    cluster: ClusterFacts, *, longest_stop: float, uses_transactions: bool
) -> Iterator[Finding]:
    """
    Check the defaults of the brokers and Kafka's own topics.

    Args:
        cluster: with the topics `OFFSETS_TOPIC` and `TRANSACTIONS_TOPIC`.
        longest_stop: seconds for which a consumer may stop.
        uses_transactions: whether this outbox writes transactions.
    """
    if cluster.text("auto.create.topics.enable") == "true":
        replicas = cluster.number("default.replication.factor", 1)
        in_sync = cluster.number(ISR, 1)
        if replicas < REPLICAS or in_sync < IN_SYNC:
            yield Finding(
                kind=kinds.BROKER_DEFAULTS,
                subject="brokers",
                seen="auto.create.topics.enable = true, default.replication.factor ="
                f" {replicas}, {ISR} = {in_sync}",
                cure="in server.properties: auto.create.topics.enable=false, or"
                f" default.replication.factor={REPLICAS} and {ISR}={IN_SYNC}",
            )
    minutes = cluster.number("offsets.retention.minutes", -1)
    if 0 <= minutes * 60 < longest_stop:
        yield Finding(
            kind=kinds.OFFSETS_RETENTION,
            subject="brokers",
            seen=f"offsets.retention.minutes = {minutes}, and a consumer may stop for"
            f" {duration(longest_stop)}",
            cure="in server.properties: offsets.retention.minutes="
            f"{round(longest_stop / 60)}",
        )
    names = [OFFSETS_TOPIC, *([TRANSACTIONS_TOPIC] if uses_transactions else [])]
    for name in names:
        topic = cluster.topics.get(name)
        if topic and topic.exists and topic.replicas < REPLICAS:
            yield Finding(
                kind=kinds.INTERNAL_TOPICS,
                subject=f"topic {name}",
                seen=f"{count(topic.replicas, 'replica')}, {REPLICAS} needed",
                cure=more_replicas(topic, cluster),
            )


def _size_findings(
    topic: TopicFacts, cluster: ClusterFacts, largest: int
) -> Iterator[Finding]:
    limit = topic.number("max.message.bytes", STOCK_MESSAGE_BYTES)
    if limit < largest:
        yield Finding(
            kind=kinds.MAX_MESSAGE_BYTES,
            subject=f"topic {topic.name}",
            seen=f"max.message.bytes = {limit}, {largest} needed",
            cure=altered(topic, cluster, f"max.message.bytes={largest}"),
        )
