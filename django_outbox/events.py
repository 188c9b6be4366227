"""
Events of harvesters and consumers, as frozen values.

They reach the log, the terminal, the metrics and, as Django signals, the application.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, TypeAlias

from .clock import boottime_ns

Observer: TypeAlias = "Callable[[Event], None]"
"""Gets every event on the thread where it happens; must not block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEvent:
    """Something that happened to one worker process."""

    kind: ClassVar[str] = "event"
    """The name of the event in log lines and metrics."""

    name: str
    """The name of the process."""
    boottime_ns: int = field(default_factory=boottime_ns)
    """CLOCK_BOOTTIME: comparable between processes of one machine."""
    time: datetime = field(default_factory=lambda: datetime.now(UTC))
    """Wall clock, with its zone, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(WorkerEvent):
    """Something that happened to one harvester."""

    shard: int = 0
    """The partition of the leader topic."""
    leader_id: str | None = None
    """UUID as text; None if this harvester does not lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Event):
    """The harvester has reached its database and subscribed (once a run)."""

    kind: ClassVar[str] = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAcquired(Event):
    """The harvester became the leader, under a new leader id."""

    kind: ClassVar[str] = "leader_acquired"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRefreshed(Event):
    """The leader has a new leader id, so that unsettled records are marked again."""

    kind: ClassVar[str] = "leader_refreshed"

    previous_leader_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRevoked(Event):
    """
    The broker revokes leadership; all records in flight are settled.

    If settling took longer than `DRAIN_TIMEOUT`, the log says so. `leader_id` is the
    one that ends. No successor is elected before the receivers return or
    `REVOKE_TIMEOUT` is over; they have less time if this process goes on to lead other
    shards.
    """

    kind: ClassVar[str] = "leader_revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderFenced(Event):
    """
    The harvester stopped because it cannot prove its leadership any more.

    `leader_id` is the one that ends. A successor may already lead.
    """

    kind: ClassVar[str] = "leader_fenced"

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterRead(Event):
    """Figures of the leader since the last reading."""

    kind: ClassVar[str] = "meter_read"

    rate: float
    """Records purged per second since the last reading."""
    purged: int
    """Records purged since this process started."""
    failed: int
    """Failed deliveries since this process started."""
    in_flight: int
    """Records produced and not settled."""
    blocked_keys: int
    """Keys that wait for a retry."""
    backlog: int
    """Rows in the table, up to a cap."""
    is_backlog_capped: bool
    oldest_age: float
    """Seconds since the oldest row was created."""
    receiver_errors: int
    """Signal receivers that raised or overran since this process started."""
    database: str = ""
    """Django's alias of the outbox's database; empty without Django."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordParked(Event):
    """A poison record was moved to the parked table."""

    kind: ClassVar[str] = "record_parked"

    record_id: int
    message_id: str
    topic: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesExpired(Event):
    """A series expired; its messages were parked or discarded."""

    kind: ClassVar[str] = "series_expired"

    series: str
    """Its name."""
    messages: int
    """Number of its messages."""
    action: str
    """What happened to them: `park` or `discard`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverStarted(Event):
    """Overdue records of another cluster are relayed by this one."""

    kind: ClassVar[str] = "takeover_started"

    origin: int
    """The source cluster of the records."""
    records: int
    """Found so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverEnded(Event):
    """No record of the source cluster was overdue for MAXIMUM_DELAY."""

    kind: ClassVar[str] = "takeover_ended"

    origin: int
    records: int
    """Taken over since it started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Event):
    """The harvester has stopped: no records in flight, group left (once a run)."""

    kind: ClassVar[str] = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerEvent(WorkerEvent):
    """Something that happened to one process of `runconsumer`."""

    group: str
    """Its consumer group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerReady(ConsumerEvent):
    """The group has answered: partitions, or none, are assigned (once a run)."""

    kind: ClassVar[str] = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsChanged(ConsumerEvent):
    """Partitions were assigned to this process, or revoked from it."""

    kind: ClassVar[str] = "partitions_changed"

    partitions: tuple[str, ...]
    """All assigned partitions, each as topic/number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipLost(ConsumerEvent):
    """
    The group has excluded this process, or has not answered for SESSION_TIMEOUT.

    It joins again; PartitionsChanged follows when it has.
    """

    kind: ClassVar[str] = "membership_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRead(ConsumerEvent):
    """Figures of the process since it started, and its lag."""

    kind: ClassVar[str] = "consumer_read"

    rate: float
    """Messages per second since the last reading."""
    processed: int
    """Messages whose handler has run and whose effects were committed."""
    repeats: int
    """Messages that had been processed before."""
    failed: int
    """Attempts that failed."""
    dead_letters: int
    """Messages that went to a dead letter topic."""
    lag: int
    """Messages in this process's partitions that it has not read yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered(ConsumerEvent):
    """A message went to the dead letter topic."""

    kind: ClassVar[str] = "dead_lettered"

    topic: str
    partition: int
    offset: int
    attempts: int
    error: str
    """The class of the exception, without its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStopped(ConsumerEvent):
    """The process has stopped: offsets committed, group left (once a run)."""

    kind: ClassVar[str] = "stopped"
