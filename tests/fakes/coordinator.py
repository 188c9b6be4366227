"""
A broker in memory: the leader partitions and the coordinator of one group.

The rules are those of Kafka's classic protocol with cooperative-sticky
assignment, as far as an election depends on them:

- a member that joins, leaves or expires starts a rebalance, which ends when
  each member has joined it, or at the rebalance time-out without those who
  have not; the generation counts the rebalances;
- a heartbeat or a commit is accepted only from a member of the current
  generation, and either restarts its session;
- reading and writing a partition needs no membership;
- a partition stays with the member that claims it, and goes to another only
  after its owner has joined without the claim;
- members have the same number of partitions, or one more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from typing import Protocol

from .timeline import Timeline


class Answer(Enum):
    """The coordinator's answer to a heartbeat or a commit."""

    ACCEPTED = auto()
    REBALANCING = auto()
    """Accepted, but the member must rejoin."""
    REFUSED = auto()
    """Not a member, or not of this generation."""


class Joined(Protocol):
    """Called when a rebalance has ended for a member."""

    def __call__(self, generation: int, *, owned: frozenset[int]) -> None: ...


@dataclass(slots=True, kw_only=True)
class _Member:
    expires_at: float = 0.0
    generation: int = -1
    """The last rebalance that it took part in."""
    attempt: int = 0
    answered: int = 0
    """The last attempt whose rebalance has ended."""
    claims: frozenset[int] = frozenset()
    """Partitions that it owns, as it says."""
    joined: Joined | None = None
    """Set while the member waits for the rebalance to end."""


class Coordinator:
    """Requests take effect at the moment of the call; members add the network."""

    def __init__(
        self,
        time: Timeline,
        *,
        session_timeout: float,
        rebalance_timeout: float,
        shards: int = 1,
    ) -> None:
        self.logs: list[list[object]] = [[] for _ in range(shards)]
        """The leader partitions; anything but a `Heartbeat` is noise."""
        self.generation = 0
        self._time = time
        self._session_timeout = session_timeout
        self._rebalance_timeout = rebalance_timeout
        self._rebalances = count(1)
        self._members: dict[str, _Member] = {}
        self._former: set[str] = set()
        """Ids of members that left or expired; they are refused."""
        self._owners: dict[int, str] = {}
        """The member that has each partition."""
        self._unwanted: str | None = None
        """Who is to lose its partitions."""
        self._rebalance: int | None = None
        """The number of the current rebalance."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self._members

    # Requests.

    def join(
        self,
        member_id: str,
        *,
        attempt: int,
        claims: frozenset[int],
        joined: Joined,
    ) -> Answer:
        """
        Take part in a rebalance, and start one if there is none.

        Args:
            member_id: chosen by the member, and of no use once it was removed.
            attempt: counts the member's joins; a repeated one is answered only.
            claims: partitions that the member owns at present.
            joined: called when the rebalance has ended.
        """
        if member_id in self._former:
            return Answer.REFUSED
        if member_id not in self._members:
            self._members[member_id] = _Member()
            self._restart_session(member_id)
            self._time.after(self._session_timeout, lambda: self._check(member_id))
        member = self._members[member_id]
        if attempt == member.answered:
            joined(self.generation, owned=self._owned_by(member_id))
        else:
            member.attempt = attempt
            member.claims, member.joined = claims, joined
            self._start_rebalance()
        return Answer.ACCEPTED

    def heartbeat(self, member_id: str, generation: int) -> Answer:
        """Restart the member's session."""
        if member_id not in self._members or generation != self.generation:
            return Answer.REFUSED
        self._restart_session(member_id)
        return Answer.ACCEPTED if self._rebalance is None else Answer.REBALANCING

    def commit(self, member_id: str, generation: int) -> Answer:
        """Store an offset; as a sign of life it restarts the session too."""
        answer = self.heartbeat(member_id, generation)
        return Answer.REFUSED if answer is Answer.REFUSED else Answer.ACCEPTED

    def knows(self, member_id: str, generation: int) -> bool:
        """Whether a transaction may commit an offset in this member's name."""
        return member_id in self._members and generation == self.generation

    def leave(self, member_id: str) -> None:
        """Remove the member and rebalance."""
        self._former.add(member_id)
        if self._members.pop(member_id, None) is not None:
            self._start_rebalance()

    # Operators and faults.

    def move(self) -> None:
        """Move the first partition from its owner to another member."""
        self._unwanted = self._owners.get(0)
        self._start_rebalance()

    def fail_over(self) -> None:
        """
        Let another broker coordinate, which knows the last generation only.

        Whoever joined since has to do it again; sessions start afresh.
        """
        self._rebalance = None
        for member_id, member in [*self._members.items()]:
            member.joined = None
            self._restart_session(member_id)
            if member.generation != self.generation:
                del self._members[member_id]

    # Rebalances and sessions.

    def _restart_session(self, member_id: str) -> None:
        member = self._members[member_id]
        member.expires_at = self._time() + self._session_timeout

    def _check(self, member_id: str) -> None:
        member = self._members.get(member_id)
        if member is None:
            return
        left = member.expires_at - self._time()
        if left <= 0 and member.joined is None:
            self.leave(member_id)
        else:
            wait = left if left > 0 else self._session_timeout
            self._time.after(wait, lambda: self._check(member_id))

    def _start_rebalance(self) -> None:
        """Start a rebalance unless one is running; end it if possible."""
        if self._rebalance is None:
            self._rebalance = number = next(self._rebalances)
            self._time.after(self._rebalance_timeout, lambda: self._cut_short(number))
        if all(m.joined is not None for m in self._members.values()):
            self._end_rebalance()

    def _cut_short(self, number: int) -> None:
        """End the rebalance without the members that have not joined it."""
        if self._rebalance == number:
            late = {i for i, m in self._members.items() if m.joined is None}
            self._former |= late
            for member_id in late:
                del self._members[member_id]
            self._end_rebalance()

    def _end_rebalance(self) -> None:
        self._rebalance = None
        self.generation += 1
        self._owners = self._choose_owners()
        for member_id, member in self._members.items():
            joined, member.joined = member.joined, None
            member.generation = self.generation
            self._restart_session(member_id)
            if joined is not None:
                member.answered = member.attempt
                joined(self.generation, owned=self._owned_by(member_id))

    def _owned_by(self, member_id: str) -> frozenset[int]:
        return frozenset(p for p, owner in self._owners.items() if owner == member_id)

    def _choose_owners(self) -> dict[int, str]:
        """Keep partitions where they are claimed; never revoke and assign at once."""
        if not self._members:
            return {}
        most = -(-len(self.logs) // len(self._members))
        kept: dict[int, str] = {}
        claimed: set[int] = set()
        for member_id, member in self._members.items():
            claimed |= member.claims
            if member_id != self._unwanted:
                kept = dict.fromkeys(sorted(member.claims)[:most], member_id) | kept
        free = {*range(len(self.logs))} - claimed
        unwanted = self._unwanted
        if 0 in free:
            self._unwanted = None
        for partition in sorted(free):
            load = Counter(kept.values())
            kept[partition] = min(
                self._members, key=lambda name: (name == unwanted, load[name])
            )
        return kept
