"""
Periodic work that only the leader's process starts, and stops in time.

Signals of the harvester come in; while its process leads, a beat calls `send`
every `interval` seconds with the leader id. What it sends is a Celery task
(`celery.py`) or any other work that opens its transactions with
`LeaderRun.unit()`, which asks the table of `leadership.py`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from django.db import close_old_connections, connections

from .. import signals
from ..clock import boottime
from ..conf import settings
from ..events import Event, LeaderFenced, LeaderRefreshed, LeaderRevoked

logger = logging.getLogger(__name__)

#: Share of REVOKE_TIMEOUT that the wait for a running unit may use.
WAIT_SHARE: Final = 0.9


class Fence(Protocol):
    """
    Where the present leader id is kept: `LeadershipManager`, or a fake of it.

    Any thread may call it. Every method may raise what the database raises.
    """

    def claim(self, name: str, leader_id: str, *, is_fresh: Callable[[], bool]) -> bool:
        """Make this leader id the present one; ask `is_fresh` after reading."""

    def end(self, name: str, leader_id: str) -> bool:
        """Let no further unit begin under this leader id; do not wait."""

    def wait_for_unit(self, name: str, *, timeout: float) -> bool:
        """Wait for the running unit; False if it goes on."""

    def unit(self, name: str, leader_id: str) -> AbstractContextManager[None]:
        """Open a transaction for one unit, or raise `UnitRefused`."""


class LeaderRun:
    """One run of a singleton, under one leader id."""

    def __init__(self, fence: Fence, *, name: str, leader_id: str) -> None:
        self.name = name
        self.leader_id = leader_id
        self._fence = fence

    def unit(self) -> AbstractContextManager[None]:
        """
        Open the transaction of one unit of work, if this process may work.

        Keep units short: no successor's begins before the last one has ended.
        Let the `UnitRefused` that it raises otherwise end the run.
        """
        return self._fence.unit(self.name, self.leader_id)


class Beat(threading.Thread):
    """
    Calls `send` at once and then every `interval` seconds, until stopped.

    A thread, since receivers must return and Celery's own beat is a process
    that would need an election of its own. An eager task runs on it.
    """

    def __init__(
        self, send: Callable[[str], object], *, leader_id: str, interval: float
    ) -> None:
        super().__init__(name="leader-beat", daemon=True)
        self.leader_id = leader_id
        self._send = send
        self._interval = interval
        self._ended = threading.Event()

    def stop(self) -> None:
        """Send no more; does not wait."""
        self._ended.set()

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                self._send_once()
                self._ended.wait(self._interval)
        finally:
            connections.close_all()

    def _send_once(self) -> None:
        close_old_connections()
        try:
            self._send(self.leader_id)
        except Exception:
            # What is away now may be back at the next tick.
            logger.warning(
                "A leader's task could not be sent",
                exc_info=True,
                extra={"action": "leader_task", "leader_id": self.leader_id},
            )


class Singleton:
    """
    What one singleton does at each event; one harvester a process.

    Its receivers run on the harvester's thread "notify", one after the other.
    """

    def __init__(
        self,
        fence: Fence,
        send: Callable[[str], object],
        *,
        name: str,
        interval: float,
    ) -> None:
        self._fence = fence
        self._send = send
        self._name = name
        self._interval = interval
        self._beat: Beat | None = None
        # Readings are taken on another thread than events of the election, so
        # that one may arrive after the end of its leader id.
        self._over: deque[str] = deque(maxlen=100)

    def connect(self) -> None:
        """Receive the signals from now on; connecting twice is harmless."""
        for signal, receiver in (
            (signals.leader_acquired, self.lead),
            (signals.leader_refreshed, self.refresh),
            # It heals what a database that was away left undone.
            (signals.meter_read, self.lead),
            (signals.leader_revoked, self.revoke),
            (signals.leader_fenced, self.fence),
        ):
            signal.connect(receiver, weak=False, dispatch_uid=f"singleton:{self._name}")

    def lead(self, event: Event, **_: object) -> None:
        """Claim the table's row for this leader id and see that the beat runs."""
        leader_id = event.leader_id
        if leader_id is None or leader_id in self._over or event.shard != 0:
            return
        # The lease behind this event was proven less than HEARTBEAT_TIMEOUT
        # before it, and no other is elected within SESSION_TIMEOUT, which is
        # more than twice as long, of that proof.
        until = event.boottime_ns / 1e9 + float(settings.HEARTBEAT_TIMEOUT)
        is_ours = self._fence.claim(
            self._name, leader_id, is_fresh=lambda: boottime() < until
        )
        if self._beat is not None and not (
            is_ours and self._beat.leader_id == leader_id
        ):
            self._stop()
        if is_ours and self._beat is None:
            self._beat = Beat(self._send, leader_id=leader_id, interval=self._interval)
            self._beat.start()

    def refresh(self, event: LeaderRefreshed, **_: object) -> None:
        """Go on under the new leader id; a run under the old one ends."""
        self._over.append(event.previous_leader_id)
        self.lead(event)

    def revoke(self, event: LeaderRevoked, **_: object) -> None:
        """Stop, and hold the successor up until the running unit has ended."""
        if not self._end(event):
            return
        budget = WAIT_SHARE * float(settings.REVOKE_TIMEOUT)
        left = event.boottime_ns / 1e9 + budget - boottime()
        if not self._fence.wait_for_unit(self._name, timeout=left):
            logger.warning(
                "A unit of %s outlasts REVOKE_TIMEOUT; its successor waits for it",
                self._name,
                extra={"action": "leader_task", "leader_id": event.leader_id},
            )

    def fence(self, event: LeaderFenced, **_: object) -> None:
        """Stop without waiting: a successor may already work."""
        self._end(event)

    def _end(self, event: Event) -> bool:
        if event.leader_id is None or event.shard != 0:
            return False
        self._over.append(event.leader_id)
        self._stop()
        self._fence.end(self._name, event.leader_id)
        return True

    def _stop(self) -> None:
        if self._beat is not None:
            self._beat.stop()
        self._beat = None
