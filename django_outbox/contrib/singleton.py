"""
Periodic work that only the leader's process starts, and stops in time.

It receives the harvester's signals. While its process leads, a beat calls `send`
every `interval` seconds with the leader id. The work that it sends, a Celery task
for instance, opens its transactions with `LeaderRun.unit()`, which checks that the
leader id is current.
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
from ..conf import lenient, settings
from ..events import Event, LeaderFenced, LeaderRefreshed, LeaderRevoked
from ..exceptions import ConfigurationError
from ..settings.field_types import has_type

logger = logging.getLogger(__name__)

WAIT_SHARE: Final = 0.9
"""Share of REVOKE_TIMEOUT that the wait for a running unit may use."""


class Fence(Protocol):
    """
    Stores the current leader id: `LeadershipManager`, or a fake of it.

    Any thread may call it. Every method may raise the errors of the database.
    """

    def claim(self, name: str, leader_id: str, *, is_fresh: Callable[[], bool]) -> bool:
        """Make this leader id the current one; call `is_fresh` after reading."""

    def end(self, name: str, leader_id: str) -> bool:
        """Let no further unit begin under this leader id; do not wait."""

    def wait_for_unit(self, name: str, *, timeout: float) -> bool:
        """Wait for the running unit; False if it continues."""

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
        Open the transaction of one unit of work, if the leader id is current.

        Keep units short: a successor's units wait until it has ended.

        Raises:
            UnitRefused: let it end the run.
        """
        return self._fence.unit(self.name, self.leader_id)


class Beat(threading.Thread):
    """
    Calls `send` at once and then every `interval` seconds, until stopped.

    It is a thread, since receivers must return, and since Celery's own beat is a
    process that would need an election, too. An eager task runs on it.
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
        except BaseException:
            # SystemExit would end the thread without a word. The service may be
            # available again at the next beat.
            logger.warning(
                "Could not send the leader's task",
                exc_info=True,
                extra={"action": "leader_task", "leader_id": self.leader_id},
            )


_shards: Final[dict[str, int]] = {}
"""The shard of each task that is connected, by its name."""


class Singleton:
    """
    Reacts to the events of one harvester about one shard, for one singleton.

    Its receivers run on the harvester's thread "notify", one after the other.

    Raises:
        ConfigurationError: `interval` is not a number of seconds above 0, or `shard`
            is not one from 0.
    """

    def __init__(
        self,
        fence: Fence,
        send: Callable[[str], object],
        *,
        name: str,
        interval: float,
        shard: int = 0,
    ) -> None:
        _check(name, interval=interval, shard=shard)
        self._fence = fence
        self._send = send
        self._shard = shard
        self._name = name
        self._interval = interval
        self._beat: Beat | None = None
        # Readings come from another thread than events of the election, so that
        # one may arrive after its leader id has ended.
        self._over: deque[str] = deque(maxlen=100)

    def connect(self) -> None:
        """
        Receive the signals from now on; connecting twice is harmless.

        Raises:
            ConfigurationError: a task of another shard has this name.
        """
        if (other := _shards.setdefault(self._name, self._shard)) != self._shard:
            raise ConfigurationError(
                f"{self._name} is a task of shard {other} already: give that of shard "
                f"{self._shard} a name of its own."
            )
        shards = lenient("SHARDS").SHARDS
        if self._shard >= shards:
            logger.warning(
                "%s is a task of shard %d, and SHARDS is %d: no leader runs it",
                *(self._name, self._shard, shards),
                extra={"action": "leader_task"},
            )
        for signal, receiver in (
            (signals.leader_acquired, self.lead),
            (signals.leader_refreshed, self.refresh),
            # Repairs what failed while the database was unavailable.
            (signals.meter_read, self.lead),
            (signals.leader_revoked, self.revoke),
            (signals.leader_fenced, self.fence),
        ):
            signal.connect(receiver, weak=False, dispatch_uid=f"singleton:{self._name}")

    def lead(self, event: Event, **_: object) -> None:
        """Claim the table's row for this leader id and start the beat."""
        leader_id = event.leader_id
        if leader_id is None or leader_id in self._over or event.shard != self._shard:
            return
        # The lease was proven less than HEARTBEAT_TIMEOUT before this event, and no
        # other leader is elected within SESSION_TIMEOUT of that proof, which is more
        # than twice as long.
        until = event.boottime_ns / 1e9 + float(settings.HEARTBEAT_TIMEOUT)
        is_ours = self._fence.claim(
            self._name, leader_id, is_fresh=lambda: boottime() < until
        )
        if self._beat is not None and not (
            is_ours and self._beat.leader_id == leader_id
        ):
            self._stop()
        if is_ours and self._beat is None:
            beat = Beat(self._send, leader_id=leader_id, interval=self._interval)
            beat.start()
            self._beat = beat

    def refresh(self, event: LeaderRefreshed, **_: object) -> None:
        """Continue under the new leader id; a run under the old one ends."""
        self._over.append(event.previous_leader_id)
        self.lead(event)

    def revoke(self, event: LeaderRevoked, **_: object) -> None:
        """Stop, and delay the successor until the running unit has ended."""
        if not self._end(event):
            return
        budget = WAIT_SHARE * float(settings.REVOKE_TIMEOUT)
        left = event.boottime_ns / 1e9 + budget - boottime()
        if not self._fence.wait_for_unit(self._name, timeout=left):
            logger.warning(
                "A unit of %s runs longer than REVOKE_TIMEOUT; its successor waits",
                self._name,
                extra={"action": "leader_task", "leader_id": event.leader_id},
            )

    def fence(self, event: LeaderFenced, **_: object) -> None:
        """Stop without waiting: a successor may already be working."""
        self._end(event)

    def _end(self, event: Event) -> bool:
        if event.leader_id is None or event.shard != self._shard:
            return False
        self._over.append(event.leader_id)
        self._stop()
        self._fence.end(self._name, event.leader_id)
        return True

    def _stop(self) -> None:
        if self._beat is not None:
            self._beat.stop()
        self._beat = None


def _check(name: str, *, interval: float, shard: int) -> None:
    """Refuse numbers with which the task would run all the time, or never."""
    if not (has_type(interval, "float") and 0 < interval <= threading.TIMEOUT_MAX):
        raise ConfigurationError(
            f"{name}: interval={interval!r} must be a finite number of seconds above "
            "0, for instance 5.0."
        )
    if not (has_type(shard, "int") and shard >= 0):
        raise ConfigurationError(
            f"{name}: shard={shard!r} must be the number of a shard, from 0."
        )
