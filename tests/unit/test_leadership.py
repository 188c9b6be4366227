"""The holder of the present term, and what it tells."""

from __future__ import annotations

import threading

import pytest

from django_outbox.election.leadership import Leadership
from django_outbox.election.term import LeaderTerm
from django_outbox.events import (
    Event,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
)


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def leadership(events: list[Event]) -> Leadership:
    return Leadership("me", 3, on_event=events.append)


@pytest.fixture
def term(leadership: Leadership) -> LeaderTerm:
    term = LeaderTerm.begin(shard=3, now=100.0, until=102.0)
    leadership.grant(term)
    return term


def test_nobody_leads_at_first(leadership: Leadership) -> None:
    assert leadership.term is None


def test_a_granted_term_is_told(
    leadership: Leadership, term: LeaderTerm, events: list[Event]
) -> None:
    assert leadership.term is term
    (event,) = events
    assert isinstance(event, LeaderAcquired)
    assert (event.name, event.shard, event.leader_id) == ("me", 3, term.leader_id)
    # Of the proof, not of the moment at which a process that was frozen tells.
    assert event.boottime_ns == 100_000_000_000


def test_a_refresh_swaps_the_leader_id_and_tells_both(
    leadership: Leadership, term: LeaderTerm, events: list[Event]
) -> None:
    fresh = leadership.refresh(term.leader_id, reason="a failure", now=101.0)

    assert fresh is not None
    assert leadership.term == fresh
    assert fresh.trusted_until == 102.0
    event = events[-1]
    assert isinstance(event, LeaderRefreshed)
    assert (event.name, event.shard, event.leader_id) == ("me", 3, fresh.leader_id)
    assert event.boottime_ns == 101_000_000_000
    assert event.previous_leader_id == term.leader_id
    assert event.reason == "a failure"


def test_a_refresh_of_an_id_that_is_not_the_present_one_changes_nothing(
    leadership: Leadership, term: LeaderTerm, events: list[Event]
) -> None:
    assert leadership.refresh("another", reason="late", now=101.0) is None
    assert leadership.term is term
    assert len(events) == 1


def test_an_expired_term_is_not_refreshed(
    leadership: Leadership, term: LeaderTerm
) -> None:
    assert leadership.refresh(term.leader_id, reason="late", now=102.0) is None


def test_a_refreshed_term_is_extended_under_its_new_id(
    leadership: Leadership, term: LeaderTerm
) -> None:
    fresh = leadership.refresh(term.leader_id, reason="a failure", now=101.0)
    leadership.extend(103.0)

    assert fresh is not None
    assert leadership.term == fresh.extended(103.0)


def test_the_end_is_told_with_the_id_that_ends(
    leadership: Leadership, term: LeaderTerm, events: list[Event]
) -> None:
    fresh = leadership.refresh(term.leader_id, reason="a failure", now=101.0)
    leadership.revoke()

    assert fresh is not None
    assert leadership.term is None
    event = events[-1]
    assert isinstance(event, LeaderRevoked)
    assert (event.name, event.shard, event.leader_id) == ("me", 3, fresh.leader_id)


def test_a_fence_is_told_with_its_reason(
    leadership: Leadership, term: LeaderTerm, events: list[Event]
) -> None:
    leadership.fence("no proof")

    assert leadership.term is None
    event = events[-1]
    assert isinstance(event, LeaderFenced)
    assert (event.name, event.shard, event.leader_id) == ("me", 3, term.leader_id)
    assert event.reason == "no proof"


def test_an_end_without_a_term_tells_nothing(
    leadership: Leadership, events: list[Event]
) -> None:
    leadership.revoke()
    leadership.fence("no proof")
    leadership.extend(200.0)

    assert leadership.term is None
    assert events == []


def test_a_resignation_is_noted_for_the_present_term_only(
    leadership: Leadership, term: LeaderTerm
) -> None:
    leadership.resign("another", reason="late")
    assert leadership.resignation is None

    leadership.resign(term.leader_id, reason="no database")
    assert leadership.resignation == "no database"


def test_a_resignation_ends_with_its_term(
    leadership: Leadership, term: LeaderTerm
) -> None:
    leadership.resign(term.leader_id, reason="no database")
    leadership.revoke()

    assert leadership.resignation is None


def test_of_many_threads_one_refreshes(
    leadership: Leadership, term: LeaderTerm, events: list[Event]
) -> None:
    """The leader id is compared and swapped in one step."""
    start = threading.Barrier(8)
    results = []

    def refresh() -> None:
        start.wait()
        results.append(leadership.refresh(term.leader_id, reason="race", now=101.0))

    threads = [threading.Thread(target=refresh) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(result is not None for result in results) == 1
    assert len(events) == 2
