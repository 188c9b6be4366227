"""The steps of the elector's loop, over the fake group."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_outbox.election.elector import Elector
from django_outbox.election.neli import State
from django_outbox.election.ports import Heartbeat, JoinLater, Listener
from django_outbox.election.settings import ElectionSettings
from django_outbox.election.term import LeaderTerm
from django_outbox.events import Event
from django_outbox.exceptions import (
    DatabaseError,
    KafkaUnavailable,
    OutboxError,
    TopicMissing,
    WrongOutbox,
)
from tests.fakes.membership import FakeGroup, FakeMembership
from tests.fakes.timeline import Timeline

SETTINGS: dict[str, Any] = {
    "heartbeat_timeout": 1.0,
    "heartbeat_interval": 0.5,
    "join_backoff": 0.25,
    "join_backoff_max": 2.0,
    "join_interval": 0.2,
    "resign_backoff": 1.0,
    "candidate_timeout": 5.0,
}


class Process:
    """One elector over the fake group, with everything noted."""

    def __init__(self, group: FakeGroup, name: str) -> None:
        self.time = group.time
        self.membership = Membership(group, name)
        self.events: list[Event] = []
        self.can_join = True
        self.trouble: OutboxError | None = None
        self.asked_at: list[float] = []
        self.polls: list[float] = []
        self.drained: list[LeaderTerm] = []
        self.elector = Elector(
            ElectionSettings(name=name, **SETTINGS),
            self.membership,
            clock=self.time,
            on_event=self.events.append,
            barrier=self.drained.append,
            can_join=self.ask,
            wait=self.time.advance,
        )

    def ask(self) -> bool:
        self.asked_at.append(self.time())
        if self.trouble is not None:
            raise self.trouble
        return self.can_join

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


class Membership(FakeMembership):
    """Notes how long it is polled, and may be kept from joining."""

    def __init__(self, group: FakeGroup, name: str) -> None:
        super().__init__(group, name)
        self.obstacle: OutboxError | None = None
        self.polls: list[float] = []
        self.is_mute = False
        self.is_quick = False

    def join(self, *listeners: Listener) -> None:
        if self.obstacle is not None:
            raise self.obstacle
        super().join(*listeners)
        if self.is_quick:
            for _ in range(20):
                super().poll(0.05)

    def poll(self, timeout: float) -> None:
        self.polls.append(timeout)
        super().poll(timeout)

    def send(self, heartbeat: Heartbeat, shard: int) -> None:
        if not self.is_mute:
            super().send(heartbeat, shard)


@pytest.fixture
def time() -> Timeline:
    return Timeline()


@pytest.fixture
def group(time: Timeline) -> FakeGroup:
    return FakeGroup(time)


@pytest.fixture
def process(group: FakeGroup) -> Process:
    return Process(group, "a")


def run(seconds: float, *processes: Process) -> None:
    """Step the processes in turn, as their threads would."""
    time = processes[0].time
    end = time() + seconds
    while time() < end:
        for process in processes:
            process.elector.step(0.05)


def test_it_joins_leads_and_tells_that_it_is_ready_once(process: Process) -> None:
    run(20.0, process)

    assert process.elector.states[0] is State.LEADER
    assert process.kinds == ["ready", "leader_acquired"]


def test_ready_comes_first_when_the_group_lets_it_lead_at_once(
    process: Process,
) -> None:
    process.membership.is_quick = True
    run(1.0, process)
    assert process.kinds == ["ready", "leader_acquired"]


def test_it_says_why_it_can_neither_lead_nor_stand_by(process: Process) -> None:
    elector = process.elector
    assert elector.fault == "it is not in the leader group"
    process.trouble = DatabaseError("permission denied")
    run(1.0, process)
    assert elector.fault == "it is not in the leader group: permission denied"
    process.trouble = None
    run(20.0, process)
    assert elector.states[0] is State.LEADER
    assert elector.fault == ""
    leadership = elector.leaderships[0]
    assert leadership.term is not None
    leadership.resign(leadership.term.leader_id, reason="the database is away")
    process.trouble = DatabaseError("permission denied")
    run(0.05, process)
    assert elector.fault == "it is not in the leader group"
    run(5.0, process)
    assert elector.fault == "it is not in the leader group: permission denied"


def test_a_candidate_that_stays_without_a_proof_is_at_fault(process: Process) -> None:
    process.membership.is_mute = True
    run(1.0, process)
    assert process.elector.states[0] is State.CANDIDATE
    assert process.elector.fault == ""
    run(2.5, process)
    assert process.elector.states[0] is State.CANDIDATE
    assert process.elector.fault == "it owns the leader partition and cannot prove it"


def test_it_joins_only_when_it_could_lead(process: Process) -> None:
    process.can_join = False
    run(10.0, process)
    assert process.events == []

    process.can_join = True
    run(3.0, process)
    assert process.kinds == ["ready", "leader_acquired"]


def test_it_says_why_it_cannot_lead(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    process.trouble = DatabaseError("There is no table. Run `manage.py migrate`.")
    run(10.0, process)
    assert process.events == []
    (line,) = caplog.messages
    assert "There is no table. Run `manage.py migrate`." in line

    process.trouble = None
    run(3.0, process)
    assert process.kinds == ["ready", "leader_acquired"]


def test_it_asks_ever_less_often_up_to_a_limit(process: Process) -> None:
    process.can_join = False
    run(10.0, process)

    gaps = [b - a for a, b in zip(process.asked_at, process.asked_at[1:], strict=False)]
    assert gaps == pytest.approx([0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0])


@pytest.mark.parametrize("obstacle", [KafkaUnavailable(), TopicMissing()])
def test_it_goes_on_trying_and_says_so_once(
    process: Process, obstacle: OutboxError, caplog: pytest.LogCaptureFixture
) -> None:
    process.membership.obstacle = obstacle
    with caplog.at_level(logging.WARNING):
        run(10.0, process)
        process.membership.obstacle = None
        run(3.0, process)

    assert process.kinds == ["ready", "leader_acquired"]
    assert [record.getMessage() for record in caplog.records] == [
        f"a cannot join the leader group yet: {obstacle}"
    ]


def test_a_group_that_asks_for_patience_is_asked_again_soon(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    process.membership.obstacle = JoinLater()
    with caplog.at_level(logging.WARNING):
        run(4.0, process)

    assert process.asked_at == pytest.approx([1000.0 + i * 0.2 for i in range(20)])
    assert caplog.records == []


def test_a_group_that_it_cannot_join_for_long_is_warned_of_once(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    process.membership.obstacle = JoinLater("others have four shards")
    with caplog.at_level(logging.WARNING):
        run(4.0, process)

    assert [record.getMessage() for record in caplog.records] == [
        "a cannot join the leader group yet: others have four shards"
    ]


def test_another_outbox_in_the_group_ends_it_before_it_joins(process: Process) -> None:
    process.membership.obstacle = WrongOutbox()
    with pytest.raises(WrongOutbox):
        run(1.0, process)
    assert process.kinds == []


def test_another_outbox_is_heard_when_the_own_one_was_replaced(
    process: Process,
) -> None:
    process.trouble = WrongOutbox()
    with pytest.raises(WrongOutbox):
        run(1.0, process)


def test_a_second_process_leaves_the_leader_alone(group: FakeGroup) -> None:
    a, b = Process(group, "a"), Process(group, "b")
    run(5.0, a)
    run(20.0, a, b)

    assert a.kinds == ["ready", "leader_acquired"]
    assert b.kinds == ["ready"]


def test_stopping_hands_leadership_over_at_once(group: FakeGroup) -> None:
    a, b = Process(group, "a"), Process(group, "b")
    run(5.0, a)
    run(5.0, a, b)
    term = a.elector.leaderships[0].term
    a.elector.stop()
    run(1.0, b)

    assert a.drained == [term]
    assert a.kinds == ["ready", "leader_acquired", "leader_revoked"]
    assert b.elector.states[0] is State.LEADER


def test_stopping_is_safe_before_the_first_step_and_twice(process: Process) -> None:
    process.elector.stop()
    run(2.0, process)
    process.elector.stop()
    process.elector.stop()

    assert process.kinds == ["ready", "leader_acquired", "leader_revoked"]


def test_a_crash_is_followed_by_another_leader(group: FakeGroup) -> None:
    a, b = Process(group, "a"), Process(group, "b")
    run(5.0, a)
    run(5.0, a, b)
    a.membership.crash()
    run(4.0, b)

    assert b.elector.states[0] is State.LEADER


def test_a_cut_fences_within_the_heartbeat_timeout(process: Process) -> None:
    run(5.0, process)
    process.membership.cut()
    run(1.1, process)

    assert process.kinds == ["ready", "leader_acquired", "leader_fenced"]


def test_a_leader_that_resigns_drains_leaves_and_comes_back(group: FakeGroup) -> None:
    a, b = Process(group, "a"), Process(group, "b")
    run(5.0, a)
    run(5.0, a, b)
    term = a.elector.leaderships[0].term
    assert term is not None
    a.can_join = False
    a.elector.leaderships[0].resign(term.leader_id, reason="no database")
    run(2.0, a, b)

    assert a.drained == [term]
    assert a.kinds[-1] == "leader_revoked"
    assert b.elector.states[0] is State.LEADER

    a.can_join = True
    run(5.0, a, b)
    b.elector.stop()
    run(1.0, a)
    assert a.elector.states[0] is State.LEADER
    assert a.kinds.count("ready") == 1


def test_a_resignation_leaves_the_field_to_the_others_for_a_while(
    process: Process,
) -> None:
    run(5.0, process)
    term = process.elector.leaderships[0].term
    assert term is not None
    asked = len(process.asked_at)
    process.elector.leaderships[0].resign(term.leader_id, reason="no database")
    before = process.time()
    run(3.0, process)

    assert process.asked_at[asked] >= before + 1.0
    assert process.elector.states[0] is State.LEADER


def test_a_follower_whose_group_leads_nowhere_joins_again(group: FakeGroup) -> None:
    a, b = Process(group, "a"), Process(group, "b")
    run(5.0, a, b)
    follower = b if a.elector.states[0] is State.LEADER else a
    asked = len(follower.asked_at)
    follower.membership.reason_to_rejoin = "the leader topic does not exist"
    run(0.5, a, b)
    follower.membership.reason_to_rejoin = None
    assert len(follower.asked_at) == asked
    run(2.0, a, b)
    assert len(follower.asked_at) == asked + 1


def test_a_candidate_that_proves_nothing_lets_another_one_try(
    group: FakeGroup,
) -> None:
    """It can reach the coordinator, but may not write heartbeats, say."""
    a, b = Process(group, "a"), Process(group, "b")
    a.membership.is_mute = True
    run(1.0, a)
    run(12.0, a, b)

    assert b.elector.states[0] is State.LEADER
    assert a.elector.states[0] is not State.LEADER


def test_a_follower_polls_rarely_and_a_leader_in_time(group: FakeGroup) -> None:
    a, b = Process(group, "a"), Process(group, "b")
    run(5.0, a)
    b.elector.step(10.0)
    b.elector.step(10.0)

    assert max(a.membership.polls) <= 0.1
    assert b.membership.polls[-1] == 0.1


def test_a_group_that_takes_nothing_back_still_ends_the_term(
    process: Process,
) -> None:
    run(5.0, process)
    process.membership.crash()
    process.elector.stop()

    assert process.elector.leaderships[0].term is None
    assert process.kinds[-1] == "leader_fenced"
