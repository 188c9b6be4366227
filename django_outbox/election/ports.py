"""
What Fast NELI needs from Kafka: a group membership and the leader topic.

A shard is a partition of that topic. Of shards there are as many as listeners: one,
unless the setting SHARDS says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..exceptions import OutboxError


class JoinLater(OutboxError):
    """Joining now would disturb the leader with a rebalance."""

    retriable = True

    def __init__(self, obstacle: str = "") -> None:
        super().__init__(obstacle)
        self.is_routine = not obstacle
        """Whether it only waits for its turn, for seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One record that a leader, or a candidate, writes to its partition."""

    node: str
    """The process that wrote it (its name, for people)."""
    nonce: str
    """UUID of the assignment under which it was written; never reused."""
    sent_at: float
    """The writer's own monotonic time just before the write, in seconds."""
    outbox: str = ""
    """UUID of the outbox that the writer harvests; empty: it has none."""
    system: str = ""
    """The database of that outbox: see `Identity`."""
    age: float = 0.0
    """Seconds since the group gave the partition to the writer."""


class Listener(Protocol):
    """
    The callbacks of a membership for one shard; called on the thread that polls.

    The broker gets its answer when a method returns.
    """

    def assigned(self) -> None:
        """The group assigned the shard's partition to this member."""

    def revoked(self) -> None:
        """The group revokes the partition; it waits for this method to return."""

    def lost(self) -> None:
        """The group assigns the partition to another member without waiting."""

    def heard(self, heartbeat: Heartbeat, offset: int) -> None:
        """A heartbeat, perhaps of another process, was read at this offset."""

    def confirmed(self, offset: int) -> None:
        """The coordinator accepted this member's commit of the offset."""


class Membership(Protocol):
    """
    One consumer in the leader group; one object serves one thread.

    Once joined, no method raises because a broker is unavailable: it logs and
    retries. A member that does not own the partition also hears its leader.
    """

    leaving: frozenset[int]
    """Shards that are given up now, one after the other; none between callbacks."""

    def join(self, *listeners: Listener) -> None:
        """
        Subscribe; join again after `leave`.

        Args:
            listeners: one for each shard, in order.

        Raises:
            TopicMissing: there is no leader topic, and it may not be created.
            KafkaUnavailable: no broker answers; call again later.
            JoinLater: joining now would disturb the group; call again soon.
            WrongOutbox: another outbox leads under these names.
        """

    @property
    def reason_to_rejoin(self) -> str | None:
        """Why no process can lead until this member has joined again."""

    def poll(self, timeout: float) -> None:
        """
        Run callbacks for up to `timeout` seconds.

        Raises:
            WrongOutbox: another outbox leads under these names.
        """

    def send(self, heartbeat: Heartbeat, shard: int) -> None:
        """Write it to the shard's partition; do not wait."""

    def confirm(self, offset: int, shard: int) -> None:
        """
        Commit the offset of a heartbeat to the group; do not wait.

        The coordinator checks member and generation, so that acceptance
        proves membership at a time after this call.
        """

    def leave(self) -> None:
        """
        Give all partitions up (`revoked` or `lost` is called) and leave the group.

        Returns within a few seconds, plus the time of the listener, even when no
        broker answers. Safe to call when not joined.
        """
