"""
Fast NELI's state machine, without clock, driver or thread.

Assignments, heartbeats that were read back and accepted commits go in; it sends
heartbeats, asks for commits, and grants, extends or ends the term. The page of the
package has the states and the argument why two terms never overlap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Final, Protocol, TypeAlias

from .leadership import Leadership
from .ports import Heartbeat
from .settings import ElectionSettings
from .term import LeaderTerm, new_id

logger = logging.getLogger(__name__)


Barrier: TypeAlias = Callable[[LeaderTerm], None]
"""Waits until nothing of a term is in flight; calls what fences once it is over."""


class State(Enum):
    """The role of this process in its shard."""

    FOLLOWER = "follower"
    """It does not own the leader partition."""
    CANDIDATE = "candidate"
    """It owns the partition, and has not proven yet that it still does."""
    LEADER = "leader"
    """It owns the partition, and the last check found the lease valid."""

    def can_become(self, other: State) -> bool:
        """Whether the protocol allows this transition."""
        return other in _STEPS[self]


_STEPS: Final = {
    State.FOLLOWER: {State.CANDIDATE},
    State.CANDIDATE: {State.LEADER, State.FOLLOWER},
    State.LEADER: {State.CANDIDATE, State.FOLLOWER},
}


class Wire(Protocol):
    """The part of `Membership` that Neli calls. Neither method waits."""

    def send(self, heartbeat: Heartbeat, shard: int) -> None:
        """Write it to the shard's partition."""

    def confirm(self, offset: int, shard: int) -> None:
        """Commit the offset of a heartbeat to the group."""


class Neli:
    """
    One candidate for one shard; a `Listener`. All calls come from one thread.

    Args:
        settings: the process and its timing.
        clock: monotonic time (CLOCK_BOOTTIME) in seconds.
        wire: sends heartbeats and commits.
        leadership: holds the term, and publishes its events.
        barrier: called with the term before a revoked leader gives the partition
            back; returns when nothing is in flight, or at its own deadline. The
            broker elects no other leader meanwhile, unless it has lost this one. So
            as soon as the lease is over it calls `outlast`, and nothing else of this.
    """

    def __init__(
        self,
        settings: ElectionSettings,
        *,
        clock: Callable[[], float],
        wire: Wire,
        leadership: Leadership,
        barrier: Barrier,
    ) -> None:
        self.state = State.FOLLOWER
        self._settings = settings
        self._clock = clock
        self._wire = wire
        self._leadership = leadership
        self._shard = leadership.shard
        self._barrier = barrier
        self._nonce: str | None = None
        self._claims: dict[int, float] = {}
        """Offset of an own heartbeat that was read back: when it was sent."""
        self._stood_at = -inf
        self._pulse_at = inf
        self._no_proof = (
            f"no heartbeat of the last {settings.heartbeat_timeout:g} s is proven"
        )

    # Called by the group.

    def assigned(self) -> None:
        """Become a candidate."""
        self._fence("the group assigned the partition again")
        self._stand(self._clock())

    def revoked(self) -> None:
        """Drain behind the barrier, publish the end of the term, and give up."""
        if self._is_expired(self._clock()):
            self._fence(self._no_proof)
        elif (term := self._leadership.term) is not None:
            try:
                self._barrier(term)
            finally:
                # The lease may have expired meanwhile. Then a successor may
                # already lead, and LeaderRevoked promises that none does.
                self.outlast()
                if self.state is State.LEADER:
                    self._become(State.FOLLOWER)
                    self._leadership.revoke()
        self._sit()

    def outlast(self) -> None:
        """Fence a leader whose lease has expired while a barrier drains."""
        if self._is_expired(self._clock()):
            self._fence("the drain outlasted the last proof")

    def lost(self) -> None:
        """Give up at once: another process may already lead."""
        self._fence("the group has assigned the partition to another member")
        self._sit()

    # Called with what the leader partition and the coordinator answer.

    def heard(self, heartbeat: Heartbeat, offset: int) -> None:
        """Commit the offset of an own heartbeat; ignore any other."""
        now = self._clock()
        self._expire(now)
        # A writer to the topic can copy a nonce: a time in the future is forged.
        if heartbeat.nonce != self._nonce or heartbeat.sent_at > now:
            return
        oldest = now - self._settings.heartbeat_timeout
        self._claims = {o: at for o, at in self._claims.items() if at > oldest}
        if heartbeat.sent_at > oldest:
            self._claims.setdefault(offset, heartbeat.sent_at)
            self._wire.confirm(offset, self._shard)

    def confirmed(self, offset: int) -> None:
        """Accept the proof: the lease runs from when that heartbeat was sent."""
        now = self._clock()
        self._expire(now)
        sent_at = self._claims.pop(offset, None)
        if sent_at is None:
            return
        # After a proof, the next heartbeat follows at the normal interval.
        self._pulse_at = max(
            self._pulse_at, sent_at + self._settings.heartbeat_interval
        )
        until = sent_at + self._settings.heartbeat_timeout
        if self.state is State.LEADER:
            self._leadership.extend(until)
        elif until > now:
            self._become(State.LEADER)
            self._leadership.grant(
                LeaderTerm.begin(shard=self._shard, now=now, until=until)
            )

    # Time passes.

    def tick(self) -> None:
        """Fence an expired lease; send the heartbeat that is due."""
        now = self._clock()
        self._expire(now)
        if now >= self._pulse_at:
            self._pulse(now)

    def idle(self) -> float:
        """Seconds until `tick` has something to do; infinity for a follower."""
        term = self._leadership.term
        lease = term.trusted_until if term else inf
        return max(0.0, min(self._pulse_at, lease) - self._clock())

    def unproven(self) -> float:
        """Seconds for which a candidate has lacked a proof; zero in other states."""
        if self.state is not State.CANDIDATE:
            return 0.0
        return self._clock() - self._stood_at

    # Transitions.

    def _expire(self, now: float) -> None:
        """Fence a leader whose lease has expired, before anything else."""
        if self._is_expired(now):
            self._fence(self._no_proof)
            self._stand(now)

    def _is_expired(self, now: float) -> bool:
        term = self._leadership.term
        return term is not None and term.remaining(now) <= 0

    def _fence(self, reason: str) -> None:
        if self.state is State.LEADER:
            self._become(State.CANDIDATE)
            self._leadership.fence(reason)

    def _stand(self, now: float) -> None:
        """Void all earlier proofs and start to prove leadership again."""
        # First, because `unproven` is asked by any thread.
        self._stood_at = now
        if self.state is State.FOLLOWER:
            self._become(State.CANDIDATE)
        self._nonce = new_id()
        self._claims = {}
        self._pulse(now)

    def _sit(self) -> None:
        if self.state is not State.FOLLOWER:
            self._become(State.FOLLOWER)
        self._nonce = None
        self._claims = {}
        self._pulse_at = inf

    def _pulse(self, now: float) -> None:
        if self._nonce is None:
            return
        s = self._settings
        is_hopeless = self.unproven() > s.heartbeat_timeout
        self._pulse_at = now + (
            s.heartbeat_interval if is_hopeless else s.retry_interval
        )
        heartbeat = Heartbeat(node=s.name, nonce=self._nonce, sent_at=now)
        self._wire.send(heartbeat, self._shard)

    def _become(self, state: State) -> None:
        assert self.state.can_become(state), f"{self.state} to {state}"
        logger.debug(
            "%s: state changed from %s to %s",
            self._settings.name,
            self.state.value,
            state.value,
            extra={"action": "elect", "shard": self._shard},
        )
        self.state = state
