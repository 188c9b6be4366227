"""
The body of the elector's loop: join, poll, tick, resign, leave.

Connects a group membership, of Kafka or of one process alone, to Neli.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from ..events import Event, Ready
from ..exceptions import OutboxError, WrongOutbox
from .leadership import Leadership
from .neli import Barrier, Neli, State
from .ports import JoinLater, Membership
from .settings import ElectionSettings

logger = logging.getLogger(__name__)

NOT_IN_GROUP: Final = "it is not in the leader group"
UNPROVEN: Final = "it owns the leader partition and cannot prove it"

MAX_POLL_TIMEOUT: Final = 0.1
"""Seconds after which a resignation or a stop is noticed at the latest."""


class Elector:
    """
    One process's part in the election of each shard. Starts no thread.

    `step` and `stop` belong to one thread. `leaderships` and `fault` may be used by
    any.

    Args:
        settings: the process and its timing.
        membership: the group to join.
        clock: monotonic time (CLOCK_BOOTTIME) in seconds.
        on_event: called with Ready once, and with all events of the leaderships.
        barrier: see `Neli`.
        can_join: whether this process could lead, that is, reaches its
            database; called before each join, and may block for a moment.
            An `OutboxError` that it raises is logged as the obstacle.
        wait: sleeps while there is no group to poll.
    """

    def __init__(
        self,
        settings: ElectionSettings,
        membership: Membership,
        *,
        clock: Callable[[], float],
        on_event: Callable[[Event], None],
        barrier: Barrier,
        can_join: Callable[[], bool],
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self.leaderships = [
            Leadership(settings.name, shard, on_event=self._tell)
            for shard in range(settings.shards)
        ]
        """That of each shard, in order."""
        self._settings = settings
        self._membership = membership
        self._clock = clock
        self._on_event = on_event
        self._can_join = can_join
        self._wait = wait
        self._candidates = [
            Neli(
                settings,
                clock=clock,
                wire=membership,
                leadership=leadership,
                barrier=barrier,
            )
            for leadership in self.leaderships
        ]
        self._has_joined = False
        self._is_ready = False
        self._join_at = clock()
        self._backoff = settings.join_backoff
        self._obstacle: str | None = None

    @property
    def states(self) -> list[State]:
        """The role of this process in each shard."""
        return [candidate.state for candidate in self._candidates]

    @property
    def leaving(self) -> frozenset[int]:
        """Shards that are given up together with one whose barrier drains."""
        return self._membership.leaving

    @property
    def fault(self) -> str:
        """Why this process can neither lead nor stand by; empty: it can."""
        if not self._has_joined:
            obstacle = self._obstacle
            return f"{NOT_IN_GROUP}: {obstacle}" if obstacle else NOT_IN_GROUP
        # One proof may be late; a candidate retires only much later.
        is_unproven = self._unproven() > 2 * self._settings.heartbeat_timeout
        return UNPROVEN if is_unproven else ""

    def step(self, timeout: float = MAX_POLL_TIMEOUT) -> None:
        """
        Do what is due, then poll the group for up to `timeout` seconds.

        Raises:
            WrongOutbox: this process must not lead; `stop` it.
        """
        if self._has_joined and (reason := self._reason_to_retire()):
            self._retire(reason)
        if not self._has_joined:
            self._try_to_join(timeout)
            return
        idle = min(candidate.idle() for candidate in self._candidates)
        self._membership.poll(min(timeout, MAX_POLL_TIMEOUT, idle))
        for candidate in self._candidates:
            candidate.tick()

    def outlast(self) -> None:
        """Fence the shards that are given up and whose lease has expired meanwhile."""
        for shard in self.leaving:
            self._candidates[shard].outlast()

    def stop(self) -> None:
        """Hand leadership over and leave the group; safe to call twice."""
        self._has_joined = False
        try:
            self._membership.leave()
        finally:
            # A group that cannot be reached does not call `revoked` or `lost`.
            for candidate in self._candidates:
                candidate.lost()

    def _try_to_join(self, timeout: float) -> None:
        if (early := self._join_at - self._clock()) > 0:
            self._wait(min(timeout, early))
            return
        try:
            obstacle = self._join()
        except JoinLater as later:
            self._join_at = self._clock() + self._settings.join_interval
            level = logging.INFO if later.is_routine else logging.WARNING
            self._report(str(later), level=level)
            return
        if obstacle is None:
            self._has_joined = True
            self._backoff = self._settings.join_backoff
            self._be_ready()
        else:
            self._join_at = self._clock() + self._backoff
            self._backoff = min(2 * self._backoff, self._settings.join_backoff_max)
        self._report(obstacle)

    def _join(self) -> str | None:
        """Try to join once; return the obstacle, None if there was none."""
        try:
            if not self._can_join():
                return "the database does not answer"
            self._membership.join(*self._candidates)
        except (JoinLater, WrongOutbox):
            raise
        except OutboxError as error:
            return str(error)
        return None

    def _tell(self, event: Event) -> None:
        # This process may lead before `join` returns.
        self._be_ready()
        self._on_event(event)

    def _be_ready(self) -> None:
        """Publish Ready, once and before any other event."""
        if not self._is_ready:
            self._is_ready = True
            self._on_event(Ready(name=self._settings.name))

    def _reason_to_retire(self) -> str | None:
        """A process that owns the partition and cannot lead keeps others from it."""
        if self._unproven() > self._settings.candidate_timeout:
            return UNPROVEN
        resignations = (leadership.resignation for leadership in self.leaderships)
        return next(filter(None, resignations), self._membership.reason_to_rejoin)

    def _unproven(self) -> float:
        return max(candidate.unproven() for candidate in self._candidates)

    def _retire(self, reason: str) -> None:
        """Let another process lead; join again when this one can."""
        logger.warning(
            "%s releases the leader partition: %s",
            self._settings.name,
            reason,
            extra={"action": "resign"},
        )
        self.stop()
        self._join_at = self._clock() + self._settings.resign_backoff

    def _report(self, obstacle: str | None, *, level: int = logging.WARNING) -> None:
        """Log what keeps this process out of the group, once for each cause."""
        extra = {"action": "join"}
        name = self._settings.name
        if obstacle is None:
            logger.info("%s joined the leader group", name, extra=extra)
        elif obstacle != self._obstacle:
            logger.log(
                level,
                "%s cannot join the leader group yet: %s",
                name,
                obstacle,
                extra=extra,
            )
        self._obstacle = obstacle
