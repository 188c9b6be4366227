"""Fast NELI's decisions, one at a time."""

from __future__ import annotations

import itertools

import pytest

from django_outbox.election.leadership import Leadership
from django_outbox.election.neli import Neli, State
from django_outbox.election.ports import Heartbeat
from django_outbox.election.settings import ElectionSettings
from django_outbox.election.term import LeaderTerm
from django_outbox.events import Event, LeaderFenced
from tests.fakes.timeline import Timeline

SETTINGS = ElectionSettings(
    name="me", heartbeat_timeout=2.0, heartbeat_interval=0.5, retry_interval=0.125
)


class Bench:
    """A Neli between a recorded wire and a group that the test plays."""

    def __init__(self) -> None:
        self.time = Timeline(100.0)
        self.sent: list[Heartbeat] = []
        self.to_confirm: list[int] = []
        self.events: list[Event] = []
        self.drained: list[LeaderTerm] = []
        self.drain_lasts = 0.0
        self.is_drain_broken = False
        self.is_watching = True
        """Whether the drain tells when the lease is over."""
        self.kinds_at_the_end: list[str] = []
        """What was published when the lease was over."""
        self.offsets = itertools.count(7)
        self.leadership = Leadership("me", 0, on_event=self.events.append)
        self.neli = Neli(
            SETTINGS,
            clock=self.time,
            wire=self,
            leadership=self.leadership,
            barrier=self.drain,
        )

    def send(self, heartbeat: Heartbeat, shard: int) -> None:
        assert shard == self.leadership.shard
        self.sent.append(heartbeat)

    def confirm(self, offset: int, shard: int) -> None:
        assert shard == self.leadership.shard
        self.to_confirm.append(offset)

    def drain(self, term: LeaderTerm) -> None:
        assert self.leadership.term == term
        self.drained.append(term)
        if self.is_drain_broken:
            raise ZeroDivisionError
        left = term.remaining(self.time())
        self.time.advance(min(self.drain_lasts, left))
        if self.is_watching and self.drain_lasts >= left:
            self.neli.outlast()
            self.kinds_at_the_end = self.kinds()
        self.time.advance(max(0.0, self.drain_lasts - left))

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def echo(self) -> int:
        """Read the newest heartbeat back; return its offset."""
        offset = next(self.offsets)
        self.neli.heard(self.sent[-1], offset)
        return offset

    def prove(self) -> None:
        """Read the newest heartbeat back and confirm it."""
        self.neli.confirmed(self.echo())

    def lead(self) -> LeaderTerm:
        self.neli.assigned()
        self.prove()
        assert self.leadership.term is not None
        return self.leadership.term

    def pass_time(self, seconds: float) -> None:
        """Tick whenever something is due, as an elector would."""
        end = self.time() + seconds
        while (left := end - self.time()) > 0:
            self.time.advance(min(left, self.neli.idle()))
            self.neli.tick()


@pytest.fixture
def bench() -> Bench:
    return Bench()


# Becoming leader.


def test_a_follower_sends_nothing(bench: Bench) -> None:
    bench.pass_time(5.0)

    assert bench.sent == []
    assert bench.neli.idle() == float("inf")


def test_an_assignment_makes_a_candidate_and_no_leader(bench: Bench) -> None:
    bench.neli.assigned()

    assert bench.neli.state is State.CANDIDATE
    assert bench.leadership.term is None
    assert [h.sent_at for h in bench.sent] == [100.0]
    assert bench.sent[0].node == "me"


def test_a_heartbeat_read_back_proves_nothing_by_itself(bench: Bench) -> None:
    bench.neli.assigned()
    offset = bench.echo()

    assert bench.to_confirm == [offset]
    assert bench.neli.state is State.CANDIDATE


def test_the_lease_runs_from_the_moment_of_sending(bench: Bench) -> None:
    bench.neli.assigned()
    bench.time.advance(0.3)
    offset = bench.echo()
    bench.time.advance(0.3)
    bench.neli.confirmed(offset)

    assert bench.neli.state is State.LEADER
    assert bench.leadership.term is not None
    assert bench.leadership.term.trusted_until == 102.0
    assert bench.kinds() == ["leader_acquired"]


def test_a_proof_that_comes_too_late_makes_no_leader(bench: Bench) -> None:
    bench.neli.assigned()
    offset = bench.echo()
    bench.time.advance(2.0)
    bench.neli.confirmed(offset)

    assert bench.neli.state is State.CANDIDATE
    assert bench.events == []


def test_a_heartbeat_read_back_too_late_is_not_confirmed(bench: Bench) -> None:
    bench.neli.assigned()
    bench.time.advance(2.0)
    bench.echo()

    assert bench.to_confirm == []


def test_anothers_heartbeat_is_ignored(bench: Bench) -> None:
    bench.neli.assigned()
    bench.neli.heard(Heartbeat(node="x", nonce="another", sent_at=100.0), 3)

    assert bench.to_confirm == []


def test_a_forged_heartbeat_from_the_future_is_ignored(bench: Bench) -> None:
    """Whoever may write the topic cannot make a lease longer."""
    bench.neli.assigned()
    forged = Heartbeat(node="me", nonce=bench.sent[0].nonce, sent_at=1000.0)
    bench.neli.heard(forged, 3)

    assert bench.to_confirm == []


def test_a_confirmation_that_was_never_asked_for_is_ignored(bench: Bench) -> None:
    bench.neli.assigned()
    bench.neli.confirmed(99)

    assert bench.neli.state is State.CANDIDATE


# Staying leader.


def test_proofs_extend_the_term_without_an_event(bench: Bench) -> None:
    first = bench.lead()
    bench.pass_time(0.5)
    bench.prove()

    assert bench.leadership.term == first.extended(102.5)
    assert bench.kinds() == ["leader_acquired"]


def test_an_older_proof_does_not_shorten_the_term(bench: Bench) -> None:
    bench.lead()
    older = bench.sent[-1]
    bench.pass_time(0.5)
    bench.prove()
    bench.neli.heard(older, 50)
    bench.neli.confirmed(50)

    assert bench.leadership.term is not None
    assert bench.leadership.term.trusted_until == 102.5


def test_a_proven_leader_pulses_at_its_interval(bench: Bench) -> None:
    bench.lead()
    for _ in range(4):
        bench.pass_time(0.5)
        bench.prove()

    gaps = [b.sent_at - a.sent_at for a, b in itertools.pairwise(bench.sent)]
    assert gaps == pytest.approx([0.5] * 4)


def test_an_unproven_heartbeat_is_followed_in_haste(bench: Bench) -> None:
    bench.lead()
    bench.pass_time(1.0)

    moments = [h.sent_at for h in bench.sent]
    assert moments == [100.0, 100.5, 100.625, 100.75, 100.875, 101.0]


def test_a_candidate_without_hope_slows_down(bench: Bench) -> None:
    bench.neli.assigned()
    bench.pass_time(10.0)

    late = [h for h in bench.sent if h.sent_at > 103.0]
    assert 13 <= len(late) <= 15
    assert bench.neli.unproven() == pytest.approx(10.0)


def test_idle_reaches_to_the_next_heartbeat(bench: Bench) -> None:
    bench.lead()

    assert bench.neli.idle() == pytest.approx(0.5)


# Losing leadership.


def test_an_expired_lease_fences_the_leader(bench: Bench) -> None:
    term = bench.lead()
    bench.time.advance(2.0)
    bench.neli.tick()

    assert bench.leadership.term is None
    assert bench.neli.state is State.CANDIDATE
    event = bench.events[-1]
    assert isinstance(event, LeaderFenced)
    assert event.leader_id == term.leader_id
    assert event.reason == "no heartbeat of the last 2 s is proven"


def test_a_fenced_leader_needs_a_proof_under_a_new_nonce(bench: Bench) -> None:
    bench.lead()
    bench.pass_time(1.5)
    old = bench.echo()
    bench.time.advance(1.0)
    bench.neli.tick()
    bench.neli.confirmed(old)

    assert bench.neli.state is State.CANDIDATE
    assert bench.sent[-1].nonce != bench.sent[0].nonce

    bench.prove()
    assert bench.kinds() == ["leader_acquired", "leader_fenced", "leader_acquired"]
    assert bench.events[-1].leader_id != bench.events[0].leader_id


def test_a_leader_that_was_paused_is_fenced_before_a_proof_counts(
    bench: Bench,
) -> None:
    """After a SIGCONT the first thing that happens is the fence."""
    bench.lead()
    bench.pass_time(0.5)
    offset = bench.echo()
    bench.time.advance(30.0)
    bench.neli.confirmed(offset)

    assert bench.kinds() == ["leader_acquired", "leader_fenced"]


def test_a_lost_partition_fences_at_once(bench: Bench) -> None:
    bench.lead()
    bench.neli.lost()

    assert bench.neli.state is State.FOLLOWER
    assert bench.kinds() == ["leader_acquired", "leader_fenced"]
    assert bench.drained == []


def test_a_lost_candidate_tells_nothing(bench: Bench) -> None:
    bench.neli.assigned()
    bench.neli.lost()

    assert bench.neli.state is State.FOLLOWER
    assert bench.events == []


def test_a_revoked_leader_drains_before_it_tells(bench: Bench) -> None:
    term = bench.lead()
    bench.drain_lasts = 1.0
    bench.neli.revoked()

    assert bench.drained == [term]
    assert bench.leadership.term is None
    assert bench.neli.state is State.FOLLOWER
    assert bench.kinds() == ["leader_acquired", "leader_revoked"]
    assert bench.neli.idle() == float("inf")


@pytest.mark.parametrize("is_watching", [True, False])
def test_a_drain_that_outlasts_the_lease_ends_in_a_fence(
    bench: Bench, is_watching: bool
) -> None:
    """LeaderRevoked promises that there is no successor yet; this cannot."""
    bench.lead()
    bench.drain_lasts = 3.0
    bench.is_watching = is_watching
    bench.neli.revoked()

    event = bench.events[-1]
    assert isinstance(event, LeaderFenced)
    assert event.reason == "the drain outlasted the last proof"
    assert bench.kinds() == ["leader_acquired", "leader_fenced"]
    assert bench.neli.state is State.FOLLOWER


def test_a_leader_is_fenced_when_its_lease_is_over_and_not_when_it_is_drained(
    bench: Bench,
) -> None:
    """If the broker has lost it, too, another one may lead before the drain ends."""
    bench.lead()
    bench.drain_lasts = 3.0
    bench.neli.revoked()

    assert bench.kinds_at_the_end == ["leader_acquired", "leader_fenced"]


def test_a_leader_whose_lease_had_expired_does_not_drain(bench: Bench) -> None:
    bench.lead()
    bench.time.advance(2.0)
    bench.neli.revoked()

    assert bench.drained == []
    assert bench.kinds() == ["leader_acquired", "leader_fenced"]


def test_a_drain_that_fails_does_not_keep_leadership(bench: Bench) -> None:
    bench.lead()
    bench.is_drain_broken = True

    with pytest.raises(ZeroDivisionError):
        bench.neli.revoked()
    assert bench.leadership.term is None


def test_a_revoked_candidate_neither_drains_nor_tells(bench: Bench) -> None:
    bench.neli.assigned()
    bench.neli.revoked()

    assert bench.drained == []
    assert bench.events == []
    assert bench.neli.state is State.FOLLOWER


def test_proofs_of_an_earlier_assignment_are_void(bench: Bench) -> None:
    bench.neli.assigned()
    offset = bench.echo()
    bench.neli.lost()
    bench.neli.assigned()
    bench.neli.confirmed(offset)

    assert bench.neli.state is State.CANDIDATE


def test_a_second_assignment_without_a_loss_is_proven_anew(bench: Bench) -> None:
    bench.lead()
    bench.neli.assigned()

    assert bench.neli.state is State.CANDIDATE
    assert bench.kinds() == ["leader_acquired", "leader_fenced"]


def test_a_refreshed_term_goes_on(bench: Bench) -> None:
    term = bench.lead()
    fresh = bench.leadership.refresh(
        term.leader_id, reason="a failure", now=bench.time()
    )
    bench.pass_time(0.5)
    bench.prove()
    bench.neli.revoked()

    assert fresh is not None
    assert bench.events[-1].leader_id == fresh.leader_id


@pytest.mark.parametrize(
    ("state", "other", "is_legal"),
    [
        (State.FOLLOWER, State.CANDIDATE, True),
        (State.FOLLOWER, State.LEADER, False),
        (State.CANDIDATE, State.LEADER, True),
        (State.CANDIDATE, State.FOLLOWER, True),
        (State.LEADER, State.CANDIDATE, True),
        (State.LEADER, State.FOLLOWER, True),
        (State.LEADER, State.LEADER, False),
    ],
)
def test_a_follower_never_leads_without_being_a_candidate(
    state: State, other: State, is_legal: bool
) -> None:
    assert state.can_become(other) is is_legal
