"""
Reads the relay's counters at intervals, for the event meter_read.

The thread "tend" asks it: it may wait for the count of the backlog, which the
dispatching thread must not.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Protocol

from ..events import MeterRead
from ..message.record import Backlog
from .ports import Term


class Counters(Protocol):
    """What a relay counts."""

    @property
    def purged(self) -> int:
        """Records purged since this process started."""

    @property
    def failed(self) -> int:
        """Deliveries that failed since this process started."""

    @property
    def in_flight(self) -> int:
        """Records produced and not settled."""

    @property
    def blocked(self) -> Sized:
        """Keys that wait for a retry."""


class Totals:
    """What several relays of one process count together."""

    def __init__(self, relays: Sequence[Counters]) -> None:
        self._relays = relays

    @property
    def purged(self) -> int:
        return sum(relay.purged for relay in self._relays)

    @property
    def failed(self) -> int:
        return sum(relay.failed for relay in self._relays)

    @property
    def in_flight(self) -> int:
        return sum(relay.in_flight for relay in self._relays)

    @property
    def blocked(self) -> Sized:
        return range(sum(len(relay.blocked) for relay in self._relays))


class Meter:
    """Turns counters that only grow into readings with a rate."""

    def __init__(
        self, relay: Counters, *, name: str, interval: float, database: str = ""
    ) -> None:
        self._relay = relay
        self._database = database
        self._name = name
        self._interval = interval
        self._read_at: float | None = None
        self._purged = 0

    def wait(self, now: float) -> float:
        """Return the seconds until the next reading is due."""
        if self._read_at is None:
            self._read_at = now
        return max(0.0, self._read_at + self._interval - now)

    def read(
        self, now: float, *, term: Term, backlog: Backlog, receiver_errors: int
    ) -> MeterRead:
        """
        Make a reading of what was done since the last one.

        Args:
            now: monotonic seconds at which the leader was proven, before its table was
                asked for the backlog: the process may have been frozen meanwhile, and
                who takes a reading for a sign of leadership counts from then.
            term: one in which this process leads.
        """
        relay = self._relay
        elapsed = now - (self._read_at or now)
        purged, self._purged = relay.purged - self._purged, relay.purged
        self._read_at = now
        return MeterRead(
            name=self._name,
            boottime_ns=round(now * 1e9),
            shard=term.shard,
            leader_id=term.leader_id,
            rate=purged / elapsed if elapsed else 0.0,
            purged=relay.purged,
            failed=relay.failed,
            in_flight=relay.in_flight,
            blocked_keys=len(relay.blocked),
            backlog=backlog.records,
            is_backlog_capped=backlog.is_capped,
            oldest_age=backlog.oldest_age,
            receiver_errors=receiver_errors,
            database=self._database,
        )

    def skip(self, now: float) -> None:
        """Let a reading pass: this process does not lead."""
        self._read_at = now
        self._purged = self._relay.purged
