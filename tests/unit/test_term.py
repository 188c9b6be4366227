"""A leader's term: an id and its trust window."""

from __future__ import annotations

import dataclasses

import pytest

from django_outbox.election.term import LeaderTerm


@pytest.fixture
def term() -> LeaderTerm:
    return LeaderTerm.begin(shard=0, now=100.0, until=102.5)


def test_a_term_is_trusted_up_to_its_end(term: LeaderTerm) -> None:
    assert term.remaining(100.0) == 2.5
    assert term.remaining(102.5) == 0.0
    assert term.remaining(110.0) < 0


def test_a_proof_extends_a_term_under_the_same_id(term: LeaderTerm) -> None:
    longer = term.extended(103.0)

    assert longer.trusted_until == 103.0
    assert longer.leader_id == term.leader_id
    assert longer.acquired_at == 100.0


def test_a_late_proof_never_shortens_a_term(term: LeaderTerm) -> None:
    assert term.extended(101.0).trusted_until == 102.5


def test_refreshing_changes_the_leader_id_and_nothing_else(term: LeaderTerm) -> None:
    fresh = term.refreshed()

    assert fresh.leader_id != term.leader_id
    assert dataclasses.replace(fresh, leader_id=term.leader_id) == term


def test_a_leader_id_is_never_used_twice() -> None:
    ids = {LeaderTerm.begin(shard=0, now=0, until=1).leader_id for _ in range(100)}

    assert len(ids) == 100


def test_a_term_is_immutable(term: LeaderTerm) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        term.trusted_until = 1e9  # type: ignore[misc]
