"""
The Kafka client of a fake member, as it works behind the polling thread.

Like librdkafka's threads it joins, sends group heartbeats and reads the
coordinator's answers. It is also the process's end of the network, where most
faults are injected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from django_outbox.election.term import new_id

from .coordinator import Answer, Coordinator
from .timeline import Timeline


class Notice(Enum):
    """A callback that the listener must get before the client may continue."""

    ASSIGNED = auto()
    REVOKED = auto()
    LOST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTiming:
    """The timing of a consumer. Durations are seconds."""

    session_timeout: float
    """The coordinator removes a silent member after this long."""
    heartbeat_interval: float
    """Seconds between two group heartbeats."""
    max_poll_interval: float
    """A member that does not poll leaves after this long."""


class Told(NamedTuple):
    """A notice about a partition."""

    notice: Notice
    shard: int


class Confirmed(NamedTuple):
    """An offset of a partition that the coordinator has stored."""

    offset: int
    shard: int


class FakeClient:
    """One life of a consumer, from subscribing to its end."""

    def __init__(
        self,
        coordinator: Coordinator,
        time: Timeline,
        timing: GroupTiming,
        latency: Callable[[], float | None],
    ) -> None:
        self.inbox: deque[Told | Confirmed] = deque()
        """Notices and confirmed offsets, in order."""
        self.polled_at = time()
        self.is_cut = False
        self.is_telling = False
        """A callback of the listener is running, and the group must wait."""
        self.is_closing = False
        self._coordinator = coordinator
        self._time = time
        self._timing = timing
        self._latency = latency
        self._is_alive = True
        self._is_frozen = False
        self._held: list[Callable[[], object]] = []
        """Answers that arrived while the process was frozen."""
        self._arrivals = {"there": 0.0, "back": 0.0}
        self._owned: frozenset[int] = frozenset()
        self._answered_at = time()
        """When the coordinator last answered a heartbeat or a join."""
        self._member_id = new_id()
        self._generation = -1
        self._is_joining = False
        self._attempt = 0
        """Counts joins: an answer to an earlier one is out of date."""
        self._join()
        self._beat()

    @property
    def identity(self) -> tuple[str, int]:
        """Member id and generation, as the last rebalance gave them."""
        return self._member_id, self._generation

    # Requests of the member.

    def write(self, value: object, shard: int) -> None:
        """Append to a partition; this needs no membership."""
        self._request(lambda: self._coordinator.logs[shard].append(value))

    def commit(self, offset: int, shard: int) -> None:
        """Commit; the coordinator checks member and generation."""
        if self._is_joining:
            # It would wait for the join and then be of the old generation.
            return
        member_id, generation = self._member_id, self._generation

        def commit() -> None:
            if self._coordinator.commit(member_id, generation) is Answer.ACCEPTED:
                self._reply(lambda: self.inbox.append(Confirmed(offset, shard)))

        self._request(commit)

    def let_go(self, shard: int) -> None:
        """Rejoin once the listeners know of all that it does not own any more."""
        self.is_telling = False
        self._owned -= {shard}
        self._join()

    def leave(self) -> None:
        """Leave the group and end."""
        member_id = self._member_id
        self._request(lambda: self._coordinator.leave(member_id))
        self.die()

    # Faults.

    def die(self) -> None:
        """End without leaving; requests in flight still arrive."""
        self._is_alive = False

    def freeze(self) -> None:
        self._is_frozen = True

    def thaw(self) -> None:
        self._is_frozen = False
        held, self._held = self._held, []
        for action in held:
            action()

    # Its own thread.

    def _beat(self) -> None:
        if not self._is_alive:
            return
        self._time.after(self._timing.heartbeat_interval, self._beat)
        if self._is_frozen:
            return
        is_overdue = self._time() - self.polled_at > self._timing.max_poll_interval
        if is_overdue and not self._is_joining:
            self._quit()
        elif self._is_joining and not is_overdue:
            # The network or the broker may have lost the first request.
            self._ask_to_join()
        elif not self._is_joining:
            silence = self._time() - self._answered_at
            if silence > self._timing.session_timeout:
                # librdkafka's SESSTMOUT: the group may go on without this member.
                self._lose()
            else:
                self._heartbeat()

    def _quit(self) -> None:
        """Leave, since the polling thread is stuck; join when it polls again."""
        member_id = self._member_id
        self._request(lambda: self._coordinator.leave(member_id))
        self._lose()

    def _heartbeat(self) -> None:
        member_id, generation = self._member_id, self._generation

        def beat() -> None:
            answer = self._coordinator.heartbeat(member_id, generation)
            self._reply(lambda: self._on_heartbeat(answer, member_id, generation))

        self._request(beat)

    def _on_heartbeat(self, answer: Answer, member_id: str, generation: int) -> None:
        asked = (member_id, generation)
        if self._is_joining or asked != (self._member_id, self._generation):
            return
        self._answered_at = self._time()
        if answer is Answer.REFUSED:
            self._lose()
        elif answer is Answer.REBALANCING:
            self._join()

    def _must_tell(self) -> bool:
        """Whether the listener must still let go, which delays a rebalance."""
        return self.is_telling or any(
            isinstance(item, Told) and item.notice is not Notice.ASSIGNED
            for item in self.inbox
        )

    def _lose(self) -> None:
        """Start over under another id, once the listener knows."""
        self._member_id = new_id()
        # An answer to a join under the former id comes too late.
        self._attempt += 1
        self._is_joining = True
        for shard in sorted(self._owned):
            if Told(Notice.LOST, shard) not in self.inbox:
                self.inbox.append(Told(Notice.LOST, shard))

    def _join(self) -> None:
        if not self.is_closing and not self._must_tell():
            self._is_joining = True
            self._attempt += 1
            self._ask_to_join()

    def _ask_to_join(self) -> None:
        if self.is_closing or self._must_tell():
            return
        member_id, attempt, claims = self._member_id, self._attempt, self._owned

        def joined(generation: int, *, owned: frozenset[int]) -> None:
            self._reply(lambda: self._on_joined(attempt, generation, owned))

        def ask() -> None:
            answer = self._coordinator.join(
                member_id, attempt=attempt, claims=claims, joined=joined
            )
            if answer is Answer.REFUSED:
                self._reply(lambda: self._on_refused(member_id))

        self._request(ask)

    def _on_joined(self, attempt: int, generation: int, owned: frozenset[int]) -> None:
        if attempt != self._attempt or not self._is_joining:
            return
        self._generation = generation
        self._is_joining = False
        self._answered_at = self._time()
        for shard in sorted(self._owned - owned):
            self.inbox.append(Told(Notice.REVOKED, shard))
        for shard in sorted(owned - self._owned):
            self.inbox.append(Told(Notice.ASSIGNED, shard))
        self._owned |= owned

    def _on_refused(self, member_id: str) -> None:
        if member_id == self._member_id:
            self._lose()

    # The network: requests and answers each keep their order, as TCP does.

    def _request(self, action: Callable[[], object]) -> None:
        self._travel("there", action)

    def _reply(self, action: Callable[[], object]) -> None:
        def arrive() -> None:
            if self._is_frozen:
                self._held.append(arrive)
            elif self._is_alive:
                action()

        self._travel("back", arrive)

    def _travel(self, way: str, action: Callable[[], object]) -> None:
        latency = self._latency()
        if latency is None or self.is_cut:
            return
        arrival = max(self._arrivals[way], self._time() + latency)
        self._arrivals[way] = arrival
        self._time.after(arrival - self._time(), action)
