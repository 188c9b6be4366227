"""Every setting of an outbox with its default, without Django."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

SHARED_NAME: Final = "outbox-leader"
"""Default name of the leader topic and group of several clusters. With one cluster the
first digits of the outbox's identity follow it."""

IDENTITY_DIGITS: Final = 12
"""Hexadecimal digits of the identity in a name: 48 bits, unique in practice."""

LEDGER_SUFFIX: Final = ".ledger"
"""Suffix of ledger topics. The ledgers of other outboxes are reserved, too: a forged
record in one could make an outbox purge records that it has not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSettings:
    """The settings of one outbox. Durations are seconds."""

    DATABASE: str | None = None
    """Alias of the database to harvest; None asks the routers."""
    TABLE: str = "outbox"
    """Name of the outbox table. Set it before the first `migrate`."""
    SOURCE: str = ""
    """Name of this outbox in the headers; empty = the leader group. The same in all
    clusters, as are LEADER_TOPIC and LEADER_GROUP."""

    LEADER_TOPIC: str = ""
    """Topic of NELI's heartbeats; one for each database that is harvested. Empty:
    derived from LEADER_GROUP or, if both are empty, from the outbox's identity.
    Clusters other than 0 add `-<CLUSTER_ID>`."""
    LEADER_GROUP: str = ""
    """Consumer group of NELI; one for each database that is harvested. Empty: the
    leader topic or, if both are empty, derived from the outbox's identity. Clusters
    other than 0 add `-<CLUSTER_ID>`."""
    CREATE_LEADER_TOPIC: bool = True
    """Create the leader topic and the ledger topic if they are missing."""
    TOPIC_REPLICATION_FACTOR: int | None = None
    """Replicas of the leader topic and the ledger topic when they are created; None =
    the broker's default."""
    TOPIC_MIN_INSYNC_REPLICAS: int | None = None
    """`min.insync.replicas` of these topics when they are created; None = the broker's
    default."""
    REQUIRE_DURABLE_TOPICS: bool = False
    """Do not start while a topic that the outbox uses could lose messages."""
    SHARDS: int = 1
    """Partitions of the leader topic that have a leader."""
    SESSION_TIMEOUT: float = 6.0
    """The broker reassigns leadership after this time without a heartbeat."""
    HEARTBEAT_TIMEOUT: float = 2.5
    """A leader trusts its leadership for this time after it sent a heartbeat that it
    read back."""
    HEARTBEAT_INTERVAL: float = 0.0
    """Time between two heartbeats of a leader; 0 = a fifth of HEARTBEAT_TIMEOUT."""
    MAX_POLL_INTERVAL: float = 0.0
    """A process that does not poll for this time leaves the group; 0 = 2.5 times
    SESSION_TIMEOUT, or more where the rules of timing want it."""
    DRAIN_TIMEOUT: float = 0.0
    """Limit for settling records in flight before a handover; 0 = a third of
    MAX_POLL_INTERVAL, at most 5 s."""
    REVOKE_TIMEOUT: float = 0.0
    """Limit for the receivers of leader_revoked, while the broker waits; 0 = half of
    MAX_POLL_INTERVAL - DRAIN_TIMEOUT, at most 2 s."""
    DATABASE_DEADLINE: float = 10.0
    """A leader resigns after this time without an answer of its database."""

    DELIVERY: str = "at-least-once"
    """`at-least-once`, or `exactly-once` for consumers that read committed records."""
    TRANSACTION_BATCH: int = 10000
    """Most records of one Kafka transaction, with `exactly-once`."""
    DELIVERY_TIMEOUT: float = 0.0
    """Time in which Kafka has to acknowledge a record; 0 = SESSION_TIMEOUT, at most
    5 s."""
    MAX_IN_FLIGHT: int = 8000
    """W: most records produced and not settled; bounds duplicates after a crash."""
    MAX_IN_FLIGHT_PER_KEY: int = 0
    """Most records of one key among these; 0: any number. With 1, at most the last
    record of a key is sent again after a crash; MARKS = "table" always has 1."""
    MAX_IN_FLIGHT_BYTES: int = 32 * 1024 * 1024
    """Most bytes of values and headers of records read and not settled."""
    MARKS: str = "memory"
    """Where at-least-once keeps its marks: `memory`, or `table` as goharvest does."""
    MARK_BATCH: int = 2000
    """Most rows that one mark claims."""
    POLL_INTERVAL: float = 0.1
    """Longest time between two polls of an idle table."""
    MIN_POLL_INTERVAL: float = 0.002
    """Shortest time between two polls, while the table is busy."""
    NOTIFY: bool = False
    """`stash()` notifies the harvester at each commit, and it polls at once."""
    LEADER_HEADER: bool = False
    """Add the header outbox-leader-id to every message."""

    POISON_POLICY: str = "block-key"
    """`block-key` keeps the order and retries; `park` moves the record to the parked
    table."""
    TOPIC_POISON_POLICY: Mapping[str, str] = field(default_factory=dict)
    """The same by topic, for topics that differ from POISON_POLICY."""
    PARK_AFTER: int = 3
    """Failed attempts until a poison record is parked."""
    RETRY_BACKOFF: float = 0.2
    """Delay of the first retry of a failed key; doubles with each attempt."""
    RETRY_BACKOFF_MAX: float = 5.0
    """Longest delay between two retries of a failed key."""

    OFFSETS: str = "kafka"
    """Where consumers keep offsets: `kafka`, or `database`, beside the effects."""
    CONSUMER_ATTEMPTS: int = 5
    """Failed attempts until a message goes to the dead letter topic; 0 = unlimited."""
    CONSUMER_IDLE_TIMEOUT: float = 60.0
    """Idle-in-transaction time-out for handlers: PostgreSQL ends the transaction of a
    handler that runs no statement for this long."""
    DEAD_LETTER_SUFFIX: str = ".dlt"
    """Appended to a topic's name, the name of its dead letter topic."""
    PROCESSED_RETENTION: float = 0.0
    """The dedupe window: the leader prunes older keys of processed messages; 0 =
    never."""

    CLUSTER_ID: int = 0
    """Cluster in which rows are written, counted from 0."""
    CLUSTERS_COUNT: int = 1
    """Active clusters that replicate this table to each other."""
    MAXIMUM_DELAY: float = 60.0
    """Age at which the next cluster takes over a record; each further cluster waits
    this time longer."""

    SERIES_TIMEOUT: float = 0.0
    """A series expires if it is not released this time after it was opened; 0 =
    never."""
    SERIES_ON_TIMEOUT: str = "park"
    """What happens to the messages of an expired series: `park` or `discard`."""
    SERIES_RETENTION: float = 604_800.0
    """Time for which a closed series is kept to refuse late messages."""

    ARCHIVE: bool = False
    """Keep sent records in the archive table until they are pruned."""
    ARCHIVE_RETENTION: float = 0.0
    """The leader drops older days of the archive; 0 = never."""
    METER_INTERVAL: float = 5.0
    """Time between two meter_read events."""
    METRICS_ADDRESS: str = ""
    """host:port of a harvester's metrics and health, for IPv6 `[::]:9187`; empty =
    off."""
    CONSUMER_METRICS_ADDRESS: str = ""
    """The same of `runconsumer`: it may run on the same host."""
    READY_AGE: float = 60.0
    """Age of the oldest record above which a process says it is not ready; 0 = any."""

    SERIALIZER: str = "django_outbox.stashing.to_json"
    """Dotted path of a callable that turns a value into text or bytes; it gets topic,
    key and headers, too, if it has keyword-only parameters of these names."""
    MAX_VALUE_BYTES: int = 900_000
    """Largest value of a message; Kafka's default limit for a batch is 1,048,588."""
    ALLOWED_TOPICS: tuple[str, ...] = ()
    """Topics that may be written to; empty = all but the reserved ones."""
    MIDDLEWARE: tuple[str, ...] = ()
    """Dotted paths of subclasses of `Middleware`, which every message passes."""
    TRACING: bool = True
    """Carry the context of the active OpenTelemetry span in the headers of a message,
    and continue it in consumers; without OpenTelemetry nothing happens."""

    KAFKA: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """librdkafka properties for all clients, in librdkafka's own names."""
    PRODUCER_KAFKA: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """librdkafka properties for the producers of messages."""
    CONSUMER_KAFKA: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """librdkafka properties for consumers of messages."""
    PIPELINE: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Settings of `manage.py outbox_pipeline`, in the names of its TOML file."""

    def __post_init__(self) -> None:
        """Derive settings that are 0 or empty from the others."""
        heartbeat = self.HEARTBEAT_INTERVAL or self.HEARTBEAT_TIMEOUT / 5
        poll = self.MAX_POLL_INTERVAL or max(
            2.5 * self.SESSION_TIMEOUT,
            2 * self.SESSION_TIMEOUT + self.HEARTBEAT_TIMEOUT + heartbeat,
        )
        drain = self.DRAIN_TIMEOUT or min(5.0, poll / 3)
        topic, group = self.LEADER_TOPIC, self.LEADER_GROUP
        if self.CLUSTERS_COUNT > 1 and not (topic or group):
            # The identities of the clusters' databases differ.
            topic = group = SHARED_NAME
        derived = {
            # Outboxes with one name in common have both, so that they see each other.
            "LEADER_TOPIC": topic or (f"neli.{group}" if group else ""),
            "LEADER_GROUP": group or topic,
            "HEARTBEAT_INTERVAL": heartbeat,
            "MAX_POLL_INTERVAL": poll,
            "DRAIN_TIMEOUT": drain,
            "REVOKE_TIMEOUT": self.REVOKE_TIMEOUT
            or max(0.0, min(2.0, (poll - drain) / 2)),
            "DELIVERY_TIMEOUT": self.DELIVERY_TIMEOUT or min(5.0, self.SESSION_TIMEOUT),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def parks(self, topic: str) -> bool:
        """Whether poison records of a topic go to the parked table."""
        return self.TOPIC_POISON_POLICY.get(topic, self.POISON_POLICY) == "park"

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of the table: one is sent while the next one is read."""
        return self.MAX_IN_FLIGHT_BYTES // 2

    @property
    def is_pipelined(self) -> bool:
        """Whether any number of records of a key may be in flight, at least once."""
        return (
            self.MARKS == "memory"
            and not self.is_exactly_once
            and self.MAX_IN_FLIGHT_PER_KEY == 0
        )

    @property
    def is_named(self) -> bool:
        """Whether topic and group of the election are known."""
        return bool(self.LEADER_TOPIC)

    def named(self, outbox: str) -> OutboxSettings:
        """Name topic and group after an outbox's identity, a UUID as text."""
        name = f"{SHARED_NAME}-{outbox.replace('-', '')[:IDENTITY_DIGITS]}"
        return replace(self, LEADER_TOPIC=name, LEADER_GROUP=name)

    @property
    def leader_topic(self) -> str:
        """The leader topic of this cluster."""
        return _of_cluster(self._known("LEADER_TOPIC"), self.CLUSTER_ID)

    @property
    def leader_group(self) -> str:
        """The leader group of this cluster."""
        return self.leader_group_of(self.CLUSTER_ID)

    def leader_group_of(self, cluster: int) -> str:
        """Return the leader group of a cluster."""
        return _of_cluster(self._known("LEADER_GROUP"), cluster)

    @property
    def source(self) -> str:
        """The header outbox-source of records written in this cluster."""
        return self.source_of(self.CLUSTER_ID)

    @property
    def sources(self) -> tuple[str, ...]:
        """
        All values of the header outbox-source in this outbox's messages.

        With several clusters also that of the time when it was one: such messages may
        still be in Kafka.
        """
        of_clusters = self.cluster_sources
        return of_clusters if len(of_clusters) == 1 else (self._source, *of_clusters)

    @property
    def cluster_sources(self) -> tuple[str, ...]:
        """The header outbox-source for each cluster, in the order of their ids."""
        return tuple(map(self.source_of, range(self.CLUSTERS_COUNT)))

    def source_of(self, cluster: int) -> str:
        """Return the header outbox-source of records written in a cluster."""
        return f"{self._source}/{cluster}" if self.CLUSTERS_COUNT > 1 else self._source

    @property
    def ledger_topic(self) -> str:
        """Compacted topic in which the exactly-once relay records its progress."""
        return self.ledger_topic_of(self.CLUSTER_ID)

    def ledger_topic_of(self, cluster: int) -> str:
        """Return the ledger topic for records written in a cluster."""
        return f"{_of_cluster(self._known('LEADER_TOPIC'), cluster)}{LEDGER_SUFFIX}"

    @property
    def is_exactly_once(self) -> bool:
        return self.DELIVERY == "exactly-once"

    @property
    def reserved_topics(self) -> frozenset[str]:
        """Topics that messages may not have: a row could forge a heartbeat."""
        return frozenset(
            name
            for cluster in range(self.CLUSTERS_COUNT if self.is_named else 0)
            for name in (
                _of_cluster(self.LEADER_TOPIC, cluster),
                self.ledger_topic_of(cluster),
            )
        )

    @property
    def _source(self) -> str:
        return self.SOURCE or self._known("LEADER_GROUP")

    def _known(self, setting: str) -> str:
        name: str = getattr(self, setting)
        if not name:
            raise LookupError(
                f"{setting} is derived from the identity in the outbox's database, "
                "which has not been read: use outbox_identity.named_settings()."
            )
        return name


def _of_cluster(name: str, cluster_id: int) -> str:
    """
    Return the name for one cluster, as several clusters may share one Kafka.

    Cluster 0 has the plain name: an outbox that becomes cluster 0 keeps its group,
    its ledger and its producer's id.
    """
    return f"{name}-{cluster_id}" if cluster_id else name
