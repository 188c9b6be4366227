"""A group of one, without Kafka."""

from __future__ import annotations

import pytest

from django_outbox.election.elector import Elector
from django_outbox.election.neli import State
from django_outbox.election.settings import ElectionSettings
from django_outbox.election.solo import SoloMembership
from django_outbox.events import Event
from tests.fakes.timeline import Timeline


@pytest.fixture
def time() -> Timeline:
    return Timeline()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def elector(time: Timeline, events: list[Event]) -> Elector:
    return Elector(
        ElectionSettings(name="solo"),
        SoloMembership(wait=time.advance),
        clock=time,
        on_event=events.append,
        barrier=lambda _: None,
        can_join=lambda: True,
        wait=time.advance,
    )


def run(elector: Elector, time: Timeline, seconds: float) -> None:
    end = time() + seconds
    while time() < end:
        elector.step(0.05)


def test_it_leads_at_once_and_goes_on_leading(
    elector: Elector, time: Timeline, events: list[Event]
) -> None:
    run(elector, time, 60.0)

    assert elector.states[0] is State.LEADER
    assert [event.kind for event in events] == ["ready", "leader_acquired"]


def test_it_hands_over_when_it_stops(
    elector: Elector, time: Timeline, events: list[Event]
) -> None:
    run(elector, time, 1.0)
    elector.stop()
    elector.stop()

    assert elector.states[0] is State.FOLLOWER
    assert events[-1].kind == "leader_revoked"


def test_it_leads_again_after_it_resigned(
    elector: Elector, time: Timeline, events: list[Event]
) -> None:
    run(elector, time, 1.0)
    assert elector.leaderships[0].term is not None
    first = elector.leaderships[0].term.leader_id
    elector.leaderships[0].resign(first, reason="no database")
    run(elector, time, 3.0)

    kinds = [event.kind for event in events]
    assert kinds == ["ready", "leader_acquired", "leader_revoked", "leader_acquired"]
    assert events[-1].leader_id != first


def test_a_pause_fences_it_too(
    elector: Elector, time: Timeline, events: list[Event]
) -> None:
    run(elector, time, 1.0)
    time.advance(60.0)
    run(elector, time, 1.0)

    kinds = [event.kind for event in events]
    assert kinds == ["ready", "leader_acquired", "leader_fenced", "leader_acquired"]


def test_a_membership_that_has_not_joined_lets_time_pass(time: Timeline) -> None:
    solo = SoloMembership(wait=time.advance)
    solo.poll(1.0)
    solo.leave()

    assert time() == 1001.0
