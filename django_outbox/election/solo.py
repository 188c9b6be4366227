"""
A group of one without Kafka: `runharvester --solo`, for development.

Implements `Membership` for the same `Elector`, so that terms, events, the barrier
and resignations work as in a real election.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

from .ports import Heartbeat, Listener


class SoloMembership:
    """
    A `Membership` that always owns all partitions and confirms everything.

    Two of them do not know each other, and both lead.
    """

    reason_to_rejoin: str | None = None
    leaving: frozenset[int] = frozenset()

    def __init__(self, *, wait: Callable[[float], object] = time.sleep) -> None:
        self._wait = wait
        self._offsets = count()
        self._listeners: tuple[Listener, ...] = ()
        self._has_assigned = False
        self._sent: list[tuple[Heartbeat, int]] = []
        self._to_confirm: list[tuple[int, int]] = []

    def join(self, *listeners: Listener) -> None:
        """Become the only member; `assigned` follows from `poll`."""
        self._listeners = listeners
        self._has_assigned = False

    def poll(self, timeout: float) -> None:
        """Return what was sent and committed, or let `timeout` pass."""
        listeners = self._listeners
        if not listeners:
            self._wait(timeout)
        elif not self._has_assigned:
            self._has_assigned = True
            for listener in listeners:
                listener.assigned()
        elif self._sent or self._to_confirm:
            sent, self._sent = self._sent, []
            offsets, self._to_confirm = self._to_confirm, []
            for heartbeat, shard in sent:
                listeners[shard].heard(heartbeat, next(self._offsets))
            for offset, shard in offsets:
                listeners[shard].confirmed(offset)
        else:
            self._wait(timeout)

    def send(self, heartbeat: Heartbeat, shard: int) -> None:
        self._sent.append((heartbeat, shard))

    def confirm(self, offset: int, shard: int) -> None:
        self._to_confirm.append((offset, shard))

    def leave(self) -> None:
        """Stop being a member."""
        listeners, self._listeners = self._listeners, ()
        self._sent, self._to_confirm = [], []
        if self._has_assigned:
            self._has_assigned = False
            self.leaving = frozenset(range(len(listeners)))
            for listener in listeners:
                listener.revoked()
            self.leaving = frozenset()
