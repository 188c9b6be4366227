"""
The current term, shared by the elector and the relay.

Neli grants, extends and ends the term on the thread "elect"; the relay reads
it, refreshes it and asks to resign on its own threads. Each change is published
as an event, in the order in which the changes took place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..events import (
    Event,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
)
from .term import LeaderTerm


class Leadership:
    """
    Thread-safe holder of one shard's `LeaderTerm`; a `relay.ports.Leadership`.

    `on_event` gets LeaderAcquired, LeaderRevoked and LeaderFenced on the
    thread "elect", and LeaderRefreshed on the thread that refreshes, with a
    lock held: for LeaderRefreshed it may neither block nor call back. Only
    for LeaderRevoked may it block, within the budget of the receivers: the
    broker waits meanwhile.
    """

    def __init__(
        self, name: str, shard: int, *, on_event: Callable[[Event], None]
    ) -> None:
        self.term: LeaderTerm | None = None
        """The current term, or None while another process may lead."""
        self.resignation: str | None = None
        """Why the current term shall end, when the relay has asked for it."""
        self.shard = shard
        self._name = name
        self._on_event = on_event
        self._lock = threading.Lock()

    def refresh(self, leader_id: str, *, reason: str, now: float) -> LeaderTerm | None:
        """Replace `leader_id` by a new one in the same window; None if it ended."""
        with self._lock:
            term = self.term
            if term is None or term.leader_id != leader_id or term.remaining(now) <= 0:
                return None
            self.term = term = term.refreshed()
            self._on_event(
                LeaderRefreshed(
                    name=self._name,
                    shard=self.shard,
                    leader_id=term.leader_id,
                    previous_leader_id=leader_id,
                    reason=reason,
                    boottime_ns=round(now * 1e9),
                )
            )
            return term

    def resign(self, leader_id: str, *, reason: str) -> None:
        """Ask the elector to end this term; without effect if it has ended."""
        with self._lock:
            if self.term is not None and self.term.leader_id == leader_id:
                self.resignation = reason

    def grant(self, term: LeaderTerm) -> None:
        """Begin a term that is proven; publish LeaderAcquired."""
        # The time of the proof: the process may have been frozen since.
        event = LeaderAcquired(
            name=self._name,
            shard=self.shard,
            leader_id=term.leader_id,
            boottime_ns=round(term.acquired_at * 1e9),
        )
        with self._lock:
            self.term = term
            self.resignation = None
        self._on_event(event)

    def extend(self, until: float) -> None:
        """Move the end of the current term's window, never back."""
        with self._lock:
            if self.term is not None:
                self.term = self.term.extended(until)

    def revoke(self) -> None:
        """End the term with nothing in flight; publish LeaderRevoked."""
        if term := self._end():
            self._on_event(
                LeaderRevoked(
                    name=self._name, shard=self.shard, leader_id=term.leader_id
                )
            )

    def fence(self, reason: str) -> None:
        """End the term, which is no longer proven; publish LeaderFenced."""
        if term := self._end():
            self._on_event(
                LeaderFenced(
                    name=self._name,
                    shard=self.shard,
                    leader_id=term.leader_id,
                    reason=reason,
                )
            )

    def _end(self) -> LeaderTerm | None:
        with self._lock:
            term, self.term, self.resignation = self.term, None, None
        return term
