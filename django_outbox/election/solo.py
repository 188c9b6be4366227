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
    A `Membership` that always owns the partition and confirms everything.

    Two of them do not know each other, and both lead.
    """

    reason_to_rejoin: str | None = None

    def __init__(self, *, wait: Callable[[float], object] = time.sleep) -> None:
        self._wait = wait
        self._offsets = count()
        self._listener: Listener | None = None
        self._has_assigned = False
        self._sent: list[Heartbeat] = []
        self._to_confirm: list[int] = []

    def join(self, listener: Listener) -> None:
        """Become the only member; `assigned` follows from `poll`."""
        self._listener = listener
        self._has_assigned = False

    def poll(self, timeout: float) -> None:
        """Return what was sent and committed, or let `timeout` pass."""
        listener = self._listener
        if listener is None:
            self._wait(timeout)
        elif not self._has_assigned:
            self._has_assigned = True
            listener.assigned()
        elif self._sent or self._to_confirm:
            sent, self._sent = self._sent, []
            offsets, self._to_confirm = self._to_confirm, []
            for heartbeat in sent:
                listener.heard(heartbeat, next(self._offsets))
            for offset in offsets:
                listener.confirmed(offset)
        else:
            self._wait(timeout)

    def send(self, heartbeat: Heartbeat) -> None:
        self._sent.append(heartbeat)

    def confirm(self, offset: int) -> None:
        self._to_confirm.append(offset)

    def leave(self) -> None:
        """Stop being a member."""
        listener, self._listener = self._listener, None
        self._sent, self._to_confirm = [], []
        if listener is not None and self._has_assigned:
            self._has_assigned = False
            listener.revoked()
