"""
What a harvester tells the application, as frozen values.

`election/` and `relay/` make them, `harvester/harvester.py` hands them to observers
(log line, terminal, metrics) and, through `signals.py`, to app code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, TypeAlias

from .clock import boottime_ns

Observer: TypeAlias = "Callable[[Event], None]"
"""Gets every event on the thread where it happens; must return at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEvent:
    """Something that happened to one worker process."""

    kind: ClassVar[str] = "event"
    """The event's name in log lines and on the wire."""

    name: str
    """The process that it happened to."""
    boottime_ns: int = field(default_factory=boottime_ns)
    """CLOCK_BOOTTIME: comparable between processes of one machine."""
    time: datetime = field(default_factory=lambda: datetime.now(UTC))
    """Wall clock, with its zone, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(WorkerEvent):
    """Something that happened to one harvester."""

    shard: int = 0
    """The partition of the leader topic that it is about."""
    leader_id: str | None = None
    """UUID as text, or None when this harvester leads nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Event):
    """The harvester has reached its database and subscribed (once a run)."""

    kind: ClassVar[str] = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAcquired(Event):
    """The harvester leads from now on, under a leader id never used before."""

    kind: ClassVar[str] = "leader_acquired"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRefreshed(Event):
    """The leader took a new leader id, so that all unsettled is marked again."""

    kind: ClassVar[str] = "leader_refreshed"

    previous_leader_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRevoked(Event):
    """
    The broker takes leadership back; nothing of ours is in flight any more.

    Unless to settle it took longer than `DRAIN_TIMEOUT`, which the log says then.
    `leader_id` is the one that ends. No successor is elected before the
    receivers return or their budget (`REVOKE_TIMEOUT`) is spent.
    """

    kind: ClassVar[str] = "leader_revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderFenced(Event):
    """
    Nothing proves any more that this harvester leads: it stopped by itself.

    `leader_id` is the one that ends. A successor may already lead.
    """

    kind: ClassVar[str] = "leader_fenced"

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterRead(Event):
    """What the leader did since the last reading."""

    kind: ClassVar[str] = "meter_read"

    rate: float
    """Records purged each second since the last reading."""
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
    """Django's alias of the outbox that is harvested; empty without Django."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordParked(Event):
    """A poison record was set aside in the parked table."""

    kind: ClassVar[str] = "record_parked"

    record_id: int
    message_id: str
    topic: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesExpired(Event):
    """The time of a series was up; its messages were parked or discarded."""

    kind: ClassVar[str] = "series_expired"

    series: str
    """What the app calls it."""
    messages: int
    """That were staged in it."""
    action: str
    """What became of them: `park` or `discard`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverStarted(Event):
    """Records that another cluster has left for too long are relayed here."""

    kind: ClassVar[str] = "takeover_started"

    origin: int
    """The cluster that has written them."""
    records: int
    """Found so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverEnded(Event):
    """None of that cluster's records had to be relayed for MAXIMUM_DELAY."""

    kind: ClassVar[str] = "takeover_ended"

    origin: int
    records: int
    """Taken over since it started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Event):
    """The harvester has ended: nothing in flight, group left (once a run)."""

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
    """The group has given this process partitions, or taken some."""

    kind: ClassVar[str] = "partitions_changed"

    partitions: tuple[str, ...]
    """All that it has now, each as topic/number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRead(ConsumerEvent):
    """What the process did since it started, and what is left."""

    kind: ClassVar[str] = "consumer_read"

    rate: float
    """Messages each second since the last reading."""
    processed: int
    """Messages whose handler has run and whose effects are committed."""
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
    """The process has ended: offsets committed, group left (once a run)."""

    kind: ClassVar[str] = "stopped"
