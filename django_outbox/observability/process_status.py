"""
What a process knows of its outbox and of itself, in one place.

Health checks and metrics read it, whether the process leads or stands by. Events and
the leader's meter fill it; a thread reads what neither of them brings.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple

from ..clock import boottime
from ..events import Event, MeterRead, RecordParked, TakeoverEnded, TakeoverStarted
from ..message.record import Backlog, TopicCounts
from .message_times import MessageTimes


class Counts(NamedTuple):
    """What the relays of a process count since its start, and what they hold now."""

    relayed: int = 0
    """Records that are in Kafka and out of the table."""
    failed: int = 0
    """Deliveries that failed."""
    in_flight: int = 0
    """Records produced and not settled."""
    blocked_keys: int = 0
    """Keys that wait for a retry."""
    receiver_errors: int = 0
    """Signal receivers that raised or overran."""


class TableStatistics(NamedTuple):
    """Figures of the table beside its backlog."""

    topics: TopicCounts
    oldest_writer_age: float
    """Seconds since the oldest transaction that writes to the table began; 0.0: there
    is none."""
    dead_tuples: int
    """Rows that wait for a vacuum."""
    pauses: int = 0
    """Topics and keys that an operator has paused; one for the whole outbox."""


class OpenWriters:
    """
    Tells how old the oldest writer is, also where the database keeps that secret.

    PostgreSQL shows when a session began its transaction only to its own role and to
    members of pg_read_all_stats. For all others its age counts from the first look
    that found it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._found_at: dict[str, float] = {}

    def oldest(self, ages: Mapping[str, float | None]) -> float:
        """Return the age of the oldest transaction in seconds; 0.0 without any."""
        now = self._clock()
        self._found_at = {name: self._found_at.get(name, now) for name in ages}
        known = (
            now - self._found_at[name] if age is None else max(age, 0.0)
            for name, age in ages.items()
        )
        return max(known, default=0.0)


class ProcessStatus:
    """
    An observer of events. Any thread may read it.

    Args:
        ready_age: age of the oldest record in seconds above which the outbox is not
            relayed as it should be; 0 = any age is right.
        patience: seconds after which a database that has not answered is away.
        max_in_flight: W, with which `in_flight` is compared.
        kafka_fault: why Kafka cannot be reached, or an empty string.
    """

    def __init__(
        self,
        *,
        ready_age: float,
        patience: float,
        max_in_flight: int = 0,
        shards: int = 1,
        kafka_fault: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = boottime,
    ) -> None:
        self.backlog: Backlog | None = None
        """As the last reading has it; None before the first one, and while the database
        stays away."""
        self.statistics: TableStatistics | None = None
        """As last measured; None: not yet, or the last time it failed."""
        self.counts = Counts()
        self.times = MessageTimes()
        """From the creation of rows to Kafka's acknowledgement, in seconds."""
        self.max_in_flight = max_in_flight
        self.shards = shards
        """How many there are."""
        self.led: set[int] = set()
        """Shards that this process leads."""
        self.leader_changes = 0
        """How often this process became the leader."""
        self.parked = 0
        """Records that this process parked."""
        kinds = (event.kind for event in Event.__subclasses__())
        self.events = Counter(dict.fromkeys(kinds, 0))
        """Events by kind, from 0: otherwise no rate would show the first one."""
        self.takeovers: dict[int, bool] = {}
        """Whether records of a cluster are taken over now, by cluster."""
        self.group_fault: Callable[[], str] = lambda: ""
        """Tells why this process can neither lead nor stand by; empty: it can."""
        self._ready_age = ready_age or inf
        self._patience = patience
        self._kafka_fault = kafka_fault
        self._clock = clock
        self._asked_at = self._answered_at = clock()
        self._database_fault = ""
        # Events come from several threads.
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._observe(event)

    def _observe(self, event: Event) -> None:
        self.events[event.kind] += 1
        if isinstance(event, MeterRead):
            self.read(Backlog(event.backlog, event.is_backlog_capped, event.oldest_age))
            if self.shards == 1:
                # With several it is that of one.
                self.counts = Counts(
                    relayed=event.purged,
                    failed=event.failed,
                    in_flight=event.in_flight,
                    blocked_keys=event.blocked_keys,
                    receiver_errors=event.receiver_errors,
                )
        elif isinstance(event, RecordParked):
            self.parked += 1
        elif isinstance(event, TakeoverStarted | TakeoverEnded):
            self.takeovers[event.origin] = isinstance(event, TakeoverStarted)
        else:
            self._change_state(event.kind, event.shard)

    def _change_state(self, kind: str, shard: int) -> None:
        if kind in {"leader_acquired", "leader_refreshed"}:
            self.leader_changes += shard not in self.led
            self.led.add(shard)
        elif kind in {"leader_revoked", "leader_fenced"}:
            self.led.discard(shard)
        elif kind == "stopped":
            self.led.clear()
        if not self.led:
            # They were the leader's; the next one has its own.
            self.counts = self.counts._replace(in_flight=0, blocked_keys=0)

    @property
    def leads(self) -> bool:
        """Whether this process leads a shard."""
        return bool(self.led)

    def read(self, backlog: Backlog) -> None:
        """Take a reading of the table."""
        self.backlog = backlog
        self._database_fault = ""
        self._asked_at = self._answered_at = self._clock()

    def failed(self, error: Exception) -> None:
        """Note that the table could not be read."""
        self._database_fault = str(error)
        self._asked_at = self._clock()
        self.statistics = None
        if self.reading_age > self._patience:
            # Other processes may read by now what has become of it.
            self.backlog = None

    @property
    def age(self) -> float:
        """Seconds since the table was last asked."""
        return self._clock() - self._asked_at

    @property
    def reading_age(self) -> float:
        """Seconds since the table last answered; before that, since the start."""
        return self._clock() - self._answered_at

    def reasons(self) -> list[str]:
        """Return why this process does not do its part; none: it does."""
        reasons = []
        if group_fault := self.group_fault():
            reasons.append(group_fault)
        if self._database_fault:
            reasons.append(f"the database is away: {self._database_fault}")
        elif self.age > self._patience:
            reasons.append(f"the database has not answered for {self.age:.0f} s")
        if kafka_fault := self._kafka_fault():
            reasons.append(kafka_fault)
        if self.backlog is not None and self.backlog.oldest_age > self._ready_age:
            reasons.append(
                f"the oldest record is {self.backlog.oldest_age:.0f} s old, more than"
                f" READY_AGE ({self._ready_age:g} s)"
            )
        return reasons
