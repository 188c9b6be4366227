"""
An in-memory leader group: several members over fake leader partitions.

    time = Timeline()
    group = FakeGroup(time)
    a, b = group.member("a"), group.member("b")

Each member is an `election.ports.Membership`. A test passes time with
`poll()` or `Timeline.advance()`, and breaks things with `freeze()`, `crash()`,
`cut()` and the group's `latency`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from django_outbox.election.ports import Heartbeat, Listener

from .client import Confirmed, FakeClient, GroupTiming, Notice, Told
from .coordinator import Coordinator
from .timeline import Timeline

STEP: Final = 0.01
"""Seconds of simulated time between two checks of a waiting poll."""


class FakeGroup:
    """
    The broker, its network, and the timing that all members share.

    Args:
        time: the clock of all members.
        session_timeout: a silent member is removed after this long.
        heartbeat_interval: between two group heartbeats of a member.
        max_poll_interval: a member that does not poll leaves after this long;
            a rebalance waits as long for a member.
        latency: returns, for each request and each answer, seconds, or None if
            it is lost.
        shards: leader partitions.
    """

    def __init__(
        self,
        time: Timeline,
        *,
        session_timeout: float = 3.0,
        heartbeat_interval: float = 0.5,
        max_poll_interval: float = 6.0,
        latency: Callable[[], float | None] = lambda: 0.001,
        shards: int = 1,
    ) -> None:
        self.time = time
        self.latency = latency
        self.timing = GroupTiming(
            session_timeout=session_timeout,
            heartbeat_interval=heartbeat_interval,
            max_poll_interval=max_poll_interval,
        )
        self.coordinator = Coordinator(
            time,
            session_timeout=session_timeout,
            rebalance_timeout=max_poll_interval,
            shards=shards,
        )

    def member(self, name: str) -> FakeMembership:
        """Make a process that may join."""
        return FakeMembership(self, name)

    def travel_time(self) -> float | None:
        """Ask `latency`, which a test may replace at any time."""
        return self.latency()

    def write(self, value: object) -> None:
        """Append to the first leader partition, as anyone with the right may."""
        self.coordinator.logs[0].append(value)


class FakeFencingToken(NamedTuple):
    """The member in one generation, as a transaction shows it to the group."""

    member_id: str
    generation: int


class FakeMembership:
    """One process's member of the group."""

    def __init__(self, group: FakeGroup, name: str) -> None:
        self.name = name
        self.fencing_tokens: dict[int, FakeFencingToken] = {}
        """Part of the transactions of each shard that this member owns."""
        self.reason_to_rejoin: str | None = None
        self.leaving: frozenset[int] = frozenset()
        self._group = group
        self._listeners: tuple[Listener, ...] = ()
        self._client: FakeClient | None = None
        self._positions: dict[int, int] = {}
        """The next offset to read of each partition that is assigned."""

    # The port.

    def join(self, *listeners: Listener) -> None:
        """Subscribe; `assigned` follows from `poll` when the group says so."""
        self.leave()
        group = self._group
        self._listeners = listeners
        self._client = FakeClient(
            group.coordinator, group.time, group.timing, group.travel_time
        )

    def poll(self, timeout: float) -> None:
        """Serve what has arrived, or let time pass until something does."""
        time = self._group.time
        end = time() + timeout
        while not self._serve() and (left := end - time()) > 0:
            time.advance(min(STEP, left))

    def send(self, heartbeat: Heartbeat, shard: int) -> None:
        """Write to a partition through this process's network."""
        if self._client is not None:
            self._client.write(heartbeat, shard)

    def confirm(self, offset: int, shard: int) -> None:
        """Commit as the member that this process believes it is."""
        if self._client is not None:
            self._client.commit(offset, shard)

    def leave(self) -> None:
        """Serve the revocations, then leave."""
        client = self._client
        if client is None:
            return
        client.is_closing = True
        self.leaving = frozenset(self._positions)
        while self._positions:
            shard, _ = self._positions.popitem()
            if Told(Notice.LOST, shard) in client.inbox:
                self.fencing_tokens.pop(shard, None)
                self._listeners[shard].lost()
            else:
                self._listeners[shard].revoked()
        self.leaving = frozenset()
        client.leave()
        self._forget()

    # Faults.

    def freeze(self) -> None:
        """Stop the process (SIGSTOP); a test must not poll it meanwhile."""
        if self._client is not None:
            self._client.freeze()

    def thaw(self) -> None:
        """Continue it (SIGCONT), with everything that arrived since."""
        if self._client is not None:
            self._client.thaw()

    def crash(self) -> None:
        """Kill the process; it does not leave the group."""
        if self._client is not None:
            self._client.die()
        self._forget()

    def cut(self, *, is_cut: bool = True) -> None:
        """Cut the network, or restore it."""
        if self._client is not None:
            self._client.is_cut = is_cut

    # The polling thread.

    def _serve(self) -> bool:
        """Call the listener with what has arrived; return whether anything did."""
        client = self._client
        if client is None:
            return False
        client.polled_at = self._group.time()
        has_served = bool(client.inbox)
        while client.inbox:
            self._tell(client, client.inbox.popleft())
        for shard in [*self._positions]:
            has_served |= not client.is_cut and self._read(shard)
        for shard in self._positions:
            self.fencing_tokens[shard] = FakeFencingToken(*client.identity)
        client.polled_at = self._group.time()
        return has_served

    def _tell(self, client: FakeClient, item: Told | Confirmed) -> None:
        shard, listener = item.shard, self._listeners[item.shard]
        if isinstance(item, Confirmed):
            listener.confirmed(item.offset)
        elif item.notice is Notice.ASSIGNED:
            self._positions[shard] = len(self._group.coordinator.logs[shard])
            listener.assigned()
        else:
            self._positions.pop(shard, None)
            client.is_telling = True
            if item.notice is Notice.REVOKED:
                # The rebalance that revokes the partition began a new generation.
                self.fencing_tokens[shard] = FakeFencingToken(*client.identity)
                self.leaving = frozenset({shard})
                listener.revoked()
                self.leaving = frozenset()
            else:
                self.fencing_tokens.pop(shard, None)
                listener.lost()
            self.fencing_tokens.pop(shard, None)
            client.let_go(shard)

    def _read(self, shard: int) -> bool:
        has_read = False
        log = self._group.coordinator.logs[shard]
        while (offset := self._positions.get(shard, len(log))) < len(log):
            self._positions[shard] = offset + 1
            if isinstance(heartbeat := log[offset], Heartbeat):
                has_read = True
                self._listeners[shard].heard(heartbeat, offset)
        return has_read

    def _forget(self) -> None:
        self._listeners, self._client = (), None
        self._positions.clear()
        self.fencing_tokens.clear()
