"""
What Fast NELI needs from Kafka: a group membership and the leader topic.

The adapter is `kafka/membership.py`; the fake is `tests/fakes/membership.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..exceptions import OutboxError


class JoinLater(OutboxError):
    """A newcomer waits, so as not to disturb the leader with a rebalance."""

    retriable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One record that a leader, or a candidate, writes to its partition."""

    node: str
    """The process that wrote it (its name, for people)."""
    nonce: str
    """UUID of the assignment under which it was written; never reused."""
    sent_at: float
    """The writer's own boot-time clock just before the write, in seconds."""
    outbox: str = ""
    """UUID of the outbox that the writer harvests; empty: it has none."""
    system: str = ""
    """Where that outbox lies: see `records.Identity`."""
    age: float = 0.0
    """Seconds since the group gave the partition to the writer."""


class Listener(Protocol):
    """
    What `Membership.poll` tells; called on the thread that polls.

    The broker is not answered before a method returns.
    """

    def assigned(self) -> None:
        """The group gave us the leader partition."""

    def revoked(self) -> None:
        """The group takes it back and waits for this method to return."""

    def lost(self) -> None:
        """The group has already given it to another, or will without waiting."""

    def heard(self, heartbeat: Heartbeat, offset: int) -> None:
        """A heartbeat, perhaps another's, was read back at this offset."""

    def confirmed(self, offset: int) -> None:
        """The coordinator accepted this heartbeat's offset from us as a member."""


class Membership(Protocol):
    """
    One consumer in the leader group; one object serves one thread.

    Once joined, no method raises because a broker is away: it logs and goes on
    trying. A member that does not own the partition hears its leader all the same.
    """

    def join(self, listener: Listener) -> None:
        """
        Subscribe; join again after `leave`.

        Raises:
            TopicMissing: there is nothing to join, and it may not be made.
            KafkaUnavailable: no broker answers; call again later.
            JoinLater: the group had better be left alone; call again soon.
            WrongOutbox: another outbox leads under these names.
        """

    @property
    def reason_to_rejoin(self) -> str | None:
        """What keeps anybody from leading until this member has joined again."""

    def poll(self, timeout: float) -> None:
        """
        Serve callbacks for up to `timeout` seconds.

        Raises:
            WrongOutbox: another outbox leads under these names.
        """

    def send(self, heartbeat: Heartbeat) -> None:
        """Write it to the leader partition; do not wait."""

    def confirm(self, offset: int) -> None:
        """
        Commit the offset of a heartbeat to the group; do not wait.

        The coordinator checks member and generation, so that acceptance
        proves membership at a moment after this call.
        """

    def leave(self) -> None:
        """
        Give the partition up (`revoked` or `lost` is called) and leave the group.

        Returns within a few seconds, plus what the listener takes, even when no
        broker answers. Safe to call when not joined.
        """
