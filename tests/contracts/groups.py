"""
One leader group to try a scenario on: in memory, or on a real Kafka.

Time passes by polling: simulated time in memory, real time on Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from uuid import uuid4

from confluent_kafka import Producer

from django_outbox.election.ports import Heartbeat, JoinLater, Membership
from django_outbox.kafka.heartbeats import decode
from django_outbox.kafka.membership import KafkaMembership
from django_outbox.settings.options import OutboxSettings
from tests.fakes.coordinator import Coordinator
from tests.fakes.membership import FakeGroup
from tests.fakes.timeline import Timeline
from tests.waiting import eventually

SESSION_TIMEOUT = 1.5
MAX_POLL_INTERVAL = 4.0
"""Seconds until a test fails for want of what it waits for."""


class Recorder:
    """A listener that notes what it is told, and answers as the test says."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.heartbeats: dict[int, Heartbeat] = {}
        self.confirmations: list[int] = []
        self.on_revoked: Callable[[], object] = lambda: None

    def assigned(self) -> None:
        self.told.append("assigned")

    def revoked(self) -> None:
        self.told.append("revoked")
        self.on_revoked()

    def lost(self) -> None:
        self.told.append("lost")

    def heard(self, heartbeat: Heartbeat, offset: int) -> None:
        self.heartbeats[offset] = heartbeat

    def confirmed(self, offset: int) -> None:
        self.confirmations.append(offset)

    def has_heard(self, nonce: str) -> bool:
        return any(h.nonce == nonce for h in self.heartbeats.values())


class Group:
    """What the scenarios do with either kind."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock

    def member(self, name: str) -> Membership:
        raise NotImplementedError

    def write(self, value: bytes) -> None:
        """Write to the leader partition as a stranger may."""
        raise NotImplementedError

    def wait(self, is_so: Callable[[], bool], *members: Membership) -> None:
        """Poll the members in turn until something is so."""

        def poll() -> None:
            for member in members:
                member.poll(0.05)

        eventually(is_so, meanwhile=poll)

    def pass_time(self, seconds: float, *members: Membership) -> None:
        """Poll the members in turn for a while."""
        end = self.clock() + seconds
        self.wait(lambda: self.clock() >= end, *members)

    def join(self, member: Membership, listener: Recorder, *others: Membership) -> None:
        """Join as soon as the group may be disturbed."""

        def has_joined() -> bool:
            try:
                member.join(listener)
            except JoinLater:
                return False
            return True

        self.wait(has_joined, *(others or (member,)))

    def join_and_own(self, member: Membership, listener: Recorder) -> None:
        self.join(member, listener)
        self.wait(lambda: "assigned" in listener.told, member)

    def read_back(self, member: Membership, listener: Recorder, nonce: str) -> int:
        """Send heartbeats until one is read back; return its offset."""

        def is_heard() -> bool:
            member.send(Heartbeat(node="n", nonce=nonce, sent_at=self.clock()), 0)
            return listener.has_heard(nonce)

        self.wait(is_heard, member)
        return next(o for o, h in listener.heartbeats.items() if h.nonce == nonce)


class MemoryGroup(Group):
    """The fake."""

    def __init__(self) -> None:
        self._time = Timeline()
        super().__init__(self._time)
        self._group = FakeGroup(
            self._time,
            session_timeout=SESSION_TIMEOUT,
            max_poll_interval=MAX_POLL_INTERVAL,
            heartbeat_interval=0.2,
        )

    def member(self, name: str) -> Membership:
        return self._group.member(name)

    @property
    def coordinator(self) -> Coordinator:
        return self._group.coordinator

    def write(self, value: bytes) -> None:
        self._group.write(decode(value) or value)


class KafkaGroup(Group):
    """The real one."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(time.monotonic)
        name = f"test-{uuid4()}"
        self.options = OutboxSettings(
            # A member shows its credential only where there are transactions.
            DELIVERY="exactly-once",
            LEADER_TOPIC=name,
            LEADER_GROUP=name,
            SESSION_TIMEOUT=SESSION_TIMEOUT,
            HEARTBEAT_TIMEOUT=0.6,
            HEARTBEAT_INTERVAL=0.2,
            MAX_POLL_INTERVAL=MAX_POLL_INTERVAL,
            KAFKA={"bootstrap.servers": bootstrap_servers},
        )
        self._members: list[KafkaMembership] = []

    def member(self, name: str) -> Membership:
        member = KafkaMembership(self.options, name=name)
        self._members.append(member)
        return member

    def write(
        self, value: bytes, headers: Sequence[tuple[str, str]] | None = None
    ) -> None:
        producer = Producer(dict(self.options.KAFKA))
        producer.produce(
            self.options.LEADER_TOPIC, value, partition=0, headers=[*(headers or ())]
        )
        assert producer.flush(20) == 0

    def close(self) -> None:
        for member in self._members:
            member.leave()
