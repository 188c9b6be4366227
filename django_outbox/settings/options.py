"""
Every option of an outbox with its default, without Django.

`conf.py` fills it from the Django project, `standalone/reaper.py` from a file;
`settings/rules.py` says which values go together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

SHARED_NAME: Final = "outbox-leader"
"""Topic and group of an election where nobody named them and several databases make
up one outbox; with the start of an outbox's identity behind it, the names of one
database's election."""

IDENTITY_DIGITS: Final = 12
"""Hexadecimal digits of the identity in a name: 48 bits that no two outboxes share."""

LEDGER_SUFFIX: Final = ".ledger"
"""Ends the names of ledger topics. All of them are reserved, those of other outboxes,
too: a record that was forged there could make an outbox purge what it has not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSettings:
    """The settings of one outbox. Durations are seconds."""

    DATABASE: str | None = None
    """Alias of the database to harvest; None asks the routers."""
    TABLE: str = "outbox"
    """Name of the outbox table. Set it before the first `migrate`."""
    SOURCE: str = ""
    """Name of this outbox in the headers; empty = the leader group. The same in all
    clusters, as are the next two."""

    LEADER_TOPIC: str = ""
    """Topic of NELI's heartbeats; one for each database that is harvested. Empty: made
    of LEADER_GROUP or, when both are empty, of the outbox's identity. Clusters but the
    first add `-<CLUSTER_ID>`."""
    LEADER_GROUP: str = ""
    """Consumer group of NELI; one for each database that is harvested. Empty: the
    leader topic or, when both are empty, made of the outbox's identity. Clusters but
    the first add `-<CLUSTER_ID>`."""
    CREATE_LEADER_TOPIC: bool = True
    """Create the leader topic, and the ledger topic, when they are missing."""
    SHARDS: int = 1
    """Partitions of the leader topic that have a leader."""
    SESSION_TIMEOUT: float = 6.0
    """The broker gives leadership away after this long without a sign."""
    HEARTBEAT_TIMEOUT: float = 2.5
    """A leader is trusted this long after it sent a heartbeat that came back."""
    HEARTBEAT_INTERVAL: float = 0.0
    """Between two heartbeats of a leader; 0 = a fifth of HEARTBEAT_TIMEOUT."""
    MAX_POLL_INTERVAL: float = 0.0
    """A process that does not poll for this long leaves the group; 0 = 2.5 times
    SESSION_TIMEOUT."""
    DRAIN_TIMEOUT: float = 0.0
    """To settle what is in flight before leadership is handed over; 0 = a third of
    MAX_POLL_INTERVAL, at most 5 s."""
    REVOKE_TIMEOUT: float = 0.0
    """Budget of the receivers of leader_revoked, while the broker waits; 0 = half of
    what DRAIN_TIMEOUT leaves of MAX_POLL_INTERVAL, at most 2 s."""
    DATABASE_DEADLINE: float = 10.0
    """A leader without its database for this long resigns."""

    DELIVERY: str = "at-least-once"
    """The promise to consumers: `at-least-once`, or `exactly-once` for those that
    read committed records."""
    TRANSACTION_BATCH: int = 5000
    """Records of one Kafka transaction at most, with `exactly-once`."""
    DELIVERY_TIMEOUT: float = 0.0
    """A record that Kafka has not acknowledged for this long has failed; 0 =
    SESSION_TIMEOUT, at most 5 s."""
    MAX_IN_FLIGHT: int = 2000
    """W: records produced and not settled; bounds duplicates after a crash."""
    MAX_IN_FLIGHT_BYTES: int = 32 * 1024 * 1024
    """Values and headers of records that are read and not settled."""
    MARKS: str = "memory"
    """Where at-least-once keeps its marks: `memory`, or `table`, as goharvest."""
    MARK_BATCH: int = 1000
    """Rows that one mark claims at most."""
    POLL_INTERVAL: float = 0.1
    """Between two looks at an empty table, at most."""
    MIN_POLL_INTERVAL: float = 0.002
    """Between two looks at a table that was busy just now."""
    NOTIFY: bool = False
    """`stash()` notifies the harvester at each commit, and it looks at once."""
    LEADER_HEADER: bool = False
    """Add the header outbox-leader-id to every message."""

    POISON_POLICY: str = "block-key"
    """`block-key` keeps the order and retries; `park` sets the record aside."""
    PARK_AFTER: int = 3
    """Failed attempts before a poison record is parked."""
    RETRY_BACKOFF: float = 0.2
    """Before the first retry of a failed key; doubles with each attempt."""
    RETRY_BACKOFF_MAX: float = 5.0
    """Between two retries of a failed key, at most."""

    OFFSETS: str = "kafka"
    """Where consumers keep offsets: `kafka`, or `database`, beside the effects."""
    CONSUMER_ATTEMPTS: int = 5
    """Failed attempts before a message goes to the dead letter topic; 0 = it is tried
    for ever."""
    CONSUMER_IDLE_TIMEOUT: float = 60.0
    """Idle-in-transaction time-out for handlers: PostgreSQL ends the transaction of a
    handler that runs no statement for this long."""
    DEAD_LETTER_SUFFIX: str = ".dlt"
    """What makes a topic's name the name of its dead letter topic."""
    PROCESSED_RETENTION: float = 0.0
    """The leader prunes keys of processed messages that are older: the dedupe window;
    0 = never."""

    CLUSTER_ID: int = 0
    """Cluster in which rows are written, counted from 0."""
    CLUSTERS_COUNT: int = 1
    """Active clusters that replicate this table to each other."""
    MAXIMUM_DELAY: float = 60.0
    """Age at which the next cluster takes a record over; each one after it waits as
    long again."""

    SERIES_TIMEOUT: float = 0.0
    """A series that is not released this long after its first message has expired;
    0 = never."""
    SERIES_ON_TIMEOUT: str = "park"
    """What becomes of its messages then: `park` or `discard`."""
    SERIES_RETENTION: float = 604_800.0
    """A closed series is remembered this long, to refuse what comes too late."""

    ARCHIVE: bool = False
    """Keep purged records in the archive table until they are pruned."""
    ARCHIVE_RETENTION: float = 0.0
    """The leader drops days of the archive that are older; 0 = never."""
    METER_INTERVAL: float = 5.0
    """Between two meter_read events."""
    METRICS_ADDRESS: str = ""
    """host:port of metrics and health; empty = off."""

    SERIALIZER: str = "django_outbox.stashing.to_json"
    """Dotted path of a callable that turns a value into text."""
    MAX_VALUE_BYTES: int = 900_000
    """Of one message's value; Kafka's stock limit for a batch is 1,048,588."""
    ALLOWED_TOPICS: tuple[str, ...] = ()
    """Topics that may be written to; empty = all but the reserved ones."""

    KAFKA: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """librdkafka properties for all clients, in librdkafka's own names."""
    PRODUCER_KAFKA: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """librdkafka properties for the producer of records only."""
    CONSUMER_KAFKA: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """librdkafka properties for the consumers of `runconsumer` only."""
    PIPELINE: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Settings of `manage.py outbox_pipeline`, in the names of its TOML file."""

    def __post_init__(self) -> None:
        """Derive what was left at 0, or empty, from what was given."""
        poll = self.MAX_POLL_INTERVAL or 2.5 * self.SESSION_TIMEOUT
        drain = self.DRAIN_TIMEOUT or min(5.0, poll / 3)
        topic, group = self.LEADER_TOPIC, self.LEADER_GROUP
        if self.CLUSTERS_COUNT > 1 and not (topic or group):
            # Each cluster's database has an identity of its own.
            topic = group = SHARED_NAME
        derived = {
            # Two outboxes that share one of the names share both, and hear it.
            "LEADER_TOPIC": topic or (f"neli.{group}" if group else ""),
            "LEADER_GROUP": group or topic,
            "HEARTBEAT_INTERVAL": self.HEARTBEAT_INTERVAL or self.HEARTBEAT_TIMEOUT / 5,
            "MAX_POLL_INTERVAL": poll,
            "DRAIN_TIMEOUT": drain,
            "REVOKE_TIMEOUT": self.REVOKE_TIMEOUT
            or max(0.0, min(2.0, (poll - drain) / 2)),
            "DELIVERY_TIMEOUT": self.DELIVERY_TIMEOUT or min(5.0, self.SESSION_TIMEOUT),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of the table: one is at work while the next is read."""
        return self.MAX_IN_FLIGHT_BYTES // 2

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

    def leader_group_of(self, origin: int) -> str:
        """Return the leader group of a cluster."""
        return _of_cluster(self._known("LEADER_GROUP"), origin)

    @property
    def source(self) -> str:
        """What the header outbox-source says of records that were written here."""
        return self.source_of(self.CLUSTER_ID)

    @property
    def sources(self) -> tuple[str, ...]:
        """What the header says of the records of each cluster, in their order."""
        return tuple(self.source_of(origin) for origin in range(self.CLUSTERS_COUNT))

    def source_of(self, origin: int) -> str:
        """What the header says of a cluster's records, whoever relays them."""
        source = self.SOURCE or self._known("LEADER_GROUP")
        return f"{source}/{origin}" if self.CLUSTERS_COUNT > 1 else source

    @property
    def ledger_topic(self) -> str:
        """Compacted topic in which the exactly-once relay keeps its books."""
        return self.ledger_topic_of(self.CLUSTER_ID)

    def ledger_topic_of(self, origin: int) -> str:
        """Return the ledger topic of a cluster's records, whoever relays them."""
        return f"{_of_cluster(self._known('LEADER_TOPIC'), origin)}{LEDGER_SUFFIX}"

    @property
    def is_exactly_once(self) -> bool:
        return self.DELIVERY == "exactly-once"

    @property
    def reserved_topics(self) -> frozenset[str]:
        """Topics that no message may name: a row could forge a heartbeat."""
        return frozenset(
            name
            for cluster in range(self.CLUSTERS_COUNT if self.is_named else 0)
            for name in (
                _of_cluster(self.LEADER_TOPIC, cluster),
                self.ledger_topic_of(cluster),
            )
        )

    def _known(self, setting: str) -> str:
        name: str = getattr(self, setting)
        if not name:
            raise LookupError(
                f"{setting} is made of the identity in the outbox's database, which "
                "was not asked for it: use outbox_identity.named_settings()."
            )
        return name


def _of_cluster(name: str, cluster_id: int) -> str:
    """
    Make a name in Kafka one cluster's own, for clusters that share one Kafka.

    The first keeps the plain name, so that an outbox which becomes the first
    of several clusters keeps its group, its ledger and its producer's id.
    """
    return f"{name}-{cluster_id}" if cluster_id else name
