"""Who has to go when two outboxes, or two databases of one, meet under one name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from django_outbox.election.ports import Heartbeat, JoinLater
from django_outbox.election.strangers import Strangers
from django_outbox.exceptions import WrongOutbox
from django_outbox.message.record import Identity
from tests.fakes.timeline import Timeline

HERE = Identity("3f2a9c1b-7d4e-4f00-8000-000000000001", "7711455915790997796/16385")
OTHER = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
OWN = Heartbeat(
    node="x", nonce="n", sent_at=1.0, outbox=HERE.outbox, system=HERE.system, age=9.0
)
ELSEWHERE = replace(OWN, system="7711455915790997796/20000")
MARGIN, SESSION_TIMEOUT, PATIENCE = 2.5, 6.0, 15.0


def strangers(
    identity: Callable[[], Identity | None] = lambda: HERE,
    clock: Timeline | None = None,
) -> Strangers:
    return Strangers(
        identity,
        topic="leaders",
        group="group",
        margin=MARGIN,
        session_timeout=SESSION_TIMEOUT,
        patience=PATIENCE,
        clock=clock or Timeline(),
    )


def hear_for(seconds: float, here: Strangers, clock: Timeline) -> None:
    """Let a process that has not joined hear another database for so long."""
    end = clock() + seconds
    while clock() <= end:
        with pytest.raises(JoinLater):
            here.check(ELSEWHERE)
        clock.advance(0.5)


def test_another_member_of_the_same_outbox_is_no_stranger() -> None:
    strangers().check(OWN)
    strangers().check(OWN, age=1.0)


def test_another_outbox_is_named_with_what_to_set() -> None:
    with pytest.raises(WrongOutbox) as caught:
        strangers().check(replace(OWN, outbox=OTHER))
    assert str(caught.value) == (
        "LEADER_TOPIC and LEADER_GROUP: outbox aaaaaaaabbbb uses the same names as "
        "this one, 3f2a9c1b7d4e (topic 'leaders', group 'group'). Set both to names "
        "that no other outbox uses."
    )


def test_a_copy_is_named_with_the_command(clock: Timeline) -> None:
    """Once all that could learn of a moved database have learned of it."""
    here = strangers(clock=clock)
    hear_for(PATIENCE, here, clock)
    with pytest.raises(WrongOutbox) as caught:
        here.check(ELSEWHERE)
    text = str(caught.value)
    assert (
        "outbox 3f2a9c1b7d4e has a leader in the database 7711455915790997796/20000"
        in text
    )
    assert HERE.system in text
    assert "manage.py outbox identity --new" in text
    assert "\n" not in text


def test_a_leader_that_learns_of_the_move_ends_nobody(clock: Timeline) -> None:
    here = strangers(clock=clock)
    hear_for(5.0, here, clock)
    assert here.are_in_doubt

    here.check(OWN)
    clock.advance(SESSION_TIMEOUT)
    assert not here.are_in_doubt

    clock.advance(PATIENCE)
    hear_for(5.0, here, clock)


def test_a_member_reads_its_identity_again_before_it_ends() -> None:
    identity = HERE
    here = strangers(lambda: identity)
    for age in (None, 60.0):
        with pytest.raises(JoinLater):
            here.check(replace(ELSEWHERE, age=60.0), age=age, joined_for=60.0)

    identity = Identity(HERE.outbox, ELSEWHERE.system)
    here.check(ELSEWHERE)


def test_of_two_copies_that_joined_at_once_neither_goes_on() -> None:
    for age in (None, 1.0):
        with pytest.raises(WrongOutbox):
            strangers().check(replace(ELSEWHERE, age=1.0), age=age, joined_for=1.0)


def test_two_copies_that_join_again_and_again_end(clock: Timeline) -> None:
    here = strangers(clock=clock)
    for _ in range(3):
        with pytest.raises(JoinLater):
            here.check(ELSEWHERE, joined_for=3.0)
        clock.advance(6.0)
    with pytest.raises(WrongOutbox):
        here.check(ELSEWHERE, joined_for=3.0)


def test_a_member_hears_another_outbox_once() -> None:
    with pytest.raises(WrongOutbox):
        strangers().check(replace(OWN, outbox=OTHER), joined_for=60.0)


@pytest.mark.parametrize("outbox", ["", OTHER])
def test_who_has_no_identity_tells_nobody_apart(outbox: str) -> None:
    strangers(lambda: None).check(replace(OWN, outbox=outbox))


def test_a_heartbeat_without_an_identity_proves_nothing() -> None:
    strangers().check(replace(OWN, outbox="", system=""))


@pytest.mark.parametrize(
    ("mine", "its", "stays"),
    [(100.0, 0.1, True), (3.1, 0.5, True), (3.0, 0.5, False), (0.1, 100.0, False)],
)
def test_the_one_that_came_later_has_to_go(
    caplog: pytest.LogCaptureFixture, mine: float, its: float, stays: bool
) -> None:
    heartbeat = replace(OWN, outbox=OTHER, age=its)
    here = strangers()
    if not stays:
        with pytest.raises(WrongOutbox):
            here.check(heartbeat, age=mine)
        return
    with caplog.at_level(logging.WARNING):
        here.check(heartbeat, age=mine)
        here.check(heartbeat, age=mine + 1)
    (told,) = caplog.records
    assert "aaaaaaaabbbb" in told.getMessage()


def test_of_two_that_came_at_once_neither_stays() -> None:
    """The first to start again leads; if both went on, nobody would notice."""
    for mine, its in ((1.0, 1.2), (1.2, 1.0)):
        with pytest.raises(WrongOutbox):
            strangers().check(replace(OWN, outbox=OTHER, age=its), age=mine)
