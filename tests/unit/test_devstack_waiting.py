"""Waits end by lack of progress, not by the clock."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from itertools import count

import pytest

from django_outbox.devstack.waiting import (
    StallDetector,
    Stalled,
    wait_while_moving,
    work_done,
)
from tests.fakes.timeline import Timeline


@pytest.fixture
def detector(clock: Timeline) -> StallDetector:
    return StallDetector(timeout=60.0, clock=clock)


def is_stalled_within(
    seconds: int, detector: StallDetector, clock: Timeline, states: Iterator[object]
) -> bool:
    for _ in range(seconds):
        clock.advance(1.0)
        if detector.is_stalled(next(states)):
            return True
    return False


def test_what_moves_once_in_a_while_is_no_stall_for_an_hour(
    detector: StallDetector, clock: Timeline
) -> None:
    states = (number // 50 for number in count())
    assert not is_stalled_within(3600, detector, clock, states)


def test_what_does_not_move_for_a_minute_is_a_stall(
    detector: StallDetector, clock: Timeline
) -> None:
    same = (0 for _ in count())
    assert not is_stalled_within(60, detector, clock, same)
    assert is_stalled_within(2, detector, clock, same)


def test_a_process_that_was_suspended_looks_again_before_it_gives_up(
    detector: StallDetector, clock: Timeline
) -> None:
    same = ("state" for _ in count())
    assert not is_stalled_within(1, detector, clock, same)
    clock.advance(3600)
    assert not is_stalled_within(50, detector, clock, same)
    assert is_stalled_within(15, detector, clock, same)


def test_a_wait_lasts_as_long_as_something_moves() -> None:
    left = iter(range(10))
    looks: list[int] = []
    wait_while_moving(
        lambda: next(left, None) is None,
        what="the end",
        progress=lambda: len(looks),
        shows=lambda: looks.append(0),
        # Less than the wait as a whole takes.
        timeout=0.05,
        interval=0.02,
    )
    assert len(looks) == 10


def test_a_wait_that_gives_up_says_what_for_and_what_it_saw_last() -> None:
    with pytest.raises(Stalled, match=r"Waited for orders; .* \(last seen: 17\)"):
        wait_while_moving(
            lambda: False,
            what="orders",
            progress=lambda: 17,
            timeout=0.01,
            interval=0.01,
        )


def test_work_is_seen_in_a_child_and_not_in_sleep() -> None:
    sleeping = subprocess.Popen(["/bin/sleep", "1000"])
    working = subprocess.Popen(
        ["/bin/sh", "-c", "sh -c 'while :; do :; done'; :"], start_new_session=True
    )
    try:
        begin = work_done([sleeping.pid])
        wait_while_moving(lambda: work_done([working.pid])[0] >= 1, what="work")
        assert work_done([sleeping.pid]) == begin
    finally:
        os.killpg(working.pid, 9)
        sleeping.kill()
        working.wait()
        sleeping.wait()


def test_a_process_that_is_gone_has_done_nothing() -> None:
    gone = subprocess.Popen(["/bin/sh", "-c", "true"])
    gone.wait()
    assert work_done([gone.pid]) == (0, 0, 0)
