"""
`manage.py outbox doctor`: looks for what makes a log lose data.

The readers of PostgreSQL and Kafka return facts, the rules turn facts into
findings. A service that does not answer is a finding, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ..election.ports import Heartbeat
from ..exceptions import DatabaseError, KafkaError
from ..kafka.topic_facts import ClusterFacts, TopicFacts
from ..message.record import Identity
from ..postgres.database_facts import DatabaseFacts, Privilege, WaitingTopic
from ..postgres.outbox_identity import named_by
from ..settings.kafka_rules import servers_of
from ..settings.message_sizes import largest_message
from ..settings.options import OutboxSettings
from ..settings.rules import TOPIC_NAME
from . import finding_kinds as kinds
from .client_rules import (
    acks_findings,
    election_findings,
    settings_findings,
)
from .database_health import database_findings
from .durability import availability_findings, durability_findings, planned
from .finding import Finding
from .needed_privileges import needed_privileges
from .topic_rules import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    broker_findings,
    growth_findings,
    ledger_findings,
    missing_findings,
    record_topic_findings,
)

LONGEST_STOP: Final = 259_200.0
"""Seconds for which a consumer may stop, if nobody says otherwise: three days, a long
weekend."""

SESSIONS: Final = 2
"""Session time-outs within which a leader has certainly written a heartbeat."""


class DatabaseReader(Protocol):
    """The database of one outbox."""

    def identity(self) -> Identity | None:
        """Read the identity of the outbox; None: it has none."""

    def waiting(self) -> Sequence[WaitingTopic]:
        """Read for which topics records wait."""

    def read(self, needed: Sequence[Privilege], *, role: str = "") -> DatabaseFacts:
        """Read everything; an outage is a `DatabaseError`."""


class KafkaReader(Protocol):
    """The Kafka of one outbox."""

    def read(
        self, topics: Collection[str], *, measured: Collection[str] = ()
    ) -> ClusterFacts:
        """Describe topics, some with their offsets; an outage is a `KafkaError`."""

    def recent_heartbeats(
        self, options: OutboxSettings, *, within: float
    ) -> Sequence[Heartbeat]:
        """Return the heartbeats of the last seconds; the settings have all names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to examine."""

    options: OutboxSettings
    producer: Mapping[str, object]
    """The properties of the producer of records, as librdkafka gets them."""
    longest_stop: float = LONGEST_STOP
    """Seconds for which a consumer may stop."""
    role: str = ""
    """The harvester's role; empty: the role of this session."""
    reads_heartbeats: bool = True
    """Whether to look for another outbox under the same names; the election itself
    does, so a harvester need not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The outcome."""

    findings: Sequence[Finding]
    """In the order of `KINDS`."""
    topics: Sequence[str]
    """The existing topics that were examined."""
    has_database: bool
    """Whether the database answered."""
    brokers: int
    """Zero: Kafka did not answer."""


def examine(
    request: Request, database: DatabaseReader, kafka: KafkaReader
) -> Examination:
    """Look at settings, database and Kafka; neither has to be there."""
    options = request.options
    found = [
        *settings_findings(options, longest_stop=request.longest_stop),
        *acks_findings(request.producer),
    ]
    facts, identity = None, None
    try:
        facts = database.read(needed_privileges(options), role=request.role)
        found += database_findings(facts, options)
        found += _unseen("database", facts.unseen)
        identity = database.identity()
    except DatabaseError as error:
        found.append(_unreachable("database", error))
    options = named_by(options, identity)
    waiting = {one.topic: one for one in facts.waiting} if facts else {}
    cluster = None
    try:
        cluster = read_cluster(options, waiting, kafka)
        found += _cluster_findings(options, waiting, cluster, request.longest_stop)
        name = options.leader_topic if options.is_named else ""
        leaders = cluster.topics.get(name)
        if request.reads_heartbeats and leaders and leaders.exists:
            heard = kafka.recent_heartbeats(
                options, within=SESSIONS * options.SESSION_TIMEOUT
            )
            found += election_findings(heard, identity, name)
    except KafkaError as error:
        found.append(_unreachable(f"Kafka at {servers_of(options.KAFKA)}", error))
    return Examination(
        findings=sorted(found, key=lambda finding: _ORDER[finding.kind]),
        topics=[n for n, t in cluster.topics.items() if t.exists] if cluster else [],
        has_database=facts is not None,
        brokers=cluster.brokers if cluster else 0,
    )


_ORDER: Final = {kind: number for number, kind in enumerate(kinds.KINDS)}


def own_topics(options: OutboxSettings) -> dict[str, bool]:
    """Return the topics that the harvester creates, and whether each is a ledger."""
    if not options.is_named:
        return {}
    topics = {options.leader_topic: False}
    if options.is_exactly_once:
        clusters = range(options.CLUSTERS_COUNT)
        topics |= {options.ledger_topic_of(cluster): True for cluster in clusters}
    return topics


def read_cluster(
    options: OutboxSettings, waiting: Collection[str], kafka: KafkaReader
) -> ClusterFacts:
    """Read all topics that the outbox uses, and those that it may use."""
    records = {name for name in waiting if TOPIC_NAME.match(name)}
    used = records | set(options.ALLOWED_TOPICS)
    dead = {f"{name}{options.DEAD_LETTER_SUFFIX}" for name in used}
    dead = {name for name in dead if TOPIC_NAME.match(name)}
    names = {*own_topics(options), *used, *dead, OFFSETS_TOPIC, TRANSACTIONS_TOPIC}
    return kafka.read(names, measured=records)


def _cluster_findings(
    options: OutboxSettings,
    waiting: Mapping[str, WaitingTopic],
    cluster: ClusterFacts,
    longest_stop: float,
) -> Iterator[Finding]:
    own = own_topics(options)
    yield from broker_findings(
        cluster,
        longest_stop=longest_stop,
        uses_transactions=options.is_exactly_once,
    )
    yield from _unseen("Kafka", cluster.unseen)
    wanted = {*waiting, *options.ALLOWED_TOPICS}
    for name, topic in cluster.topics.items():
        if name in {OFFSETS_TOPIC, TRANSACTIONS_TOPIC}:
            continue
        is_own = name in own
        if not topic.exists:
            # A dead letter topic is made when it is needed.
            if is_own or name in wanted:
                yield from _of_missing(options, topic, cluster, waiting.get(name))
            continue
        yield from durability_findings(topic, cluster, is_own=is_own)
        yield from availability_findings(topic, cluster)
        if own.get(name):
            yield from ledger_findings(topic, cluster)
        elif not is_own:
            yield from record_topic_findings(
                topic,
                cluster,
                longest_stop=longest_stop,
                largest=largest_message(options),
            )
        if name in waiting:
            yield from growth_findings(topic, waiting[name])


def _of_missing(
    options: OutboxSettings,
    topic: TopicFacts,
    cluster: ClusterFacts,
    waiting: WaitingTopic | None,
) -> Iterator[Finding]:
    is_own = topic.name in own_topics(options)
    plan = planned(topic, cluster, options if is_own else None)
    if plan is not None:
        yield from durability_findings(plan, cluster, is_own=is_own)
    elif cluster.settings is not None:
        yield from missing_findings(topic, cluster, waiting)


def _unseen(where: str, unseen: Mapping[str, str]) -> Iterator[Finding]:
    cures = {
        "database": "run the doctor with a role that has this right",
        "Kafka": "allow this client to DESCRIBE the topics and to DESCRIBE_CONFIGS of"
        " topics and cluster (docs/operations/security.md)",
    }
    for what, why in unseen.items():
        yield Finding(
            kind=kinds.NOT_EXAMINED,
            subject=f"{where}: {what}",
            seen=why,
            cure=cures[where],
        )


def _unreachable(subject: str, error: Exception) -> Finding:
    return Finding(
        kind=kinds.UNREACHABLE,
        subject=subject,
        seen=" ".join(str(error).split()),
        cure="repair it or correct its settings, then run the doctor again",
    )
