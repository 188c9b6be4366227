"""How often an empty, a quiet and a busy table are looked at."""

from __future__ import annotations

import pytest

from django_outbox.relay.polling import SWEEP_INTERVAL, SWEEP_REST_FACTOR, PollSchedule


def looked(pace: PollSchedule, now: float, rows: int, *, took: float = 0.0) -> bool:
    """Look for ten rows at most; return whether it was a sweep."""
    is_sweep = pace.must_sweep(now)
    pace.requested(now)
    if is_sweep:
        pace.swept(rows, now=now + took)
    else:
        pace.found(rows, limit=10)
    return is_sweep


@pytest.fixture
def pace() -> PollSchedule:
    """One that has swept already."""
    pace = PollSchedule(busy_interval=0.01, idle_interval=0.1)
    pace.restart()
    assert looked(pace, 100.0, 0)
    return pace


def test_the_first_look_of_a_run_is_a_sweep() -> None:
    pace = PollSchedule(busy_interval=0.01, idle_interval=0.1)
    pace.restart()

    assert pace.read_at == 0.0
    assert looked(pace, 100.0, 0)
    assert not looked(pace, 100.0, 0)


def test_a_full_page_is_followed_by_the_next_at_once(pace: PollSchedule) -> None:
    looked(pace, 100.5, 10)

    assert pace.read_at == 0.0


def test_a_page_that_found_something_is_followed_soon(pace: PollSchedule) -> None:
    looked(pace, 100.5, 3, took=0.004)

    assert pace.read_at == pytest.approx(100.51)


def test_an_empty_table_is_looked_at_less_and_less_often(pace: PollSchedule) -> None:
    waits = []
    for _ in range(12):
        looked(pace, 100.5, 0)
        waits.append(round(pace.read_at - 100.5, 4))

    assert waits[:3] == [0.0125, 0.0156, 0.0195]
    assert waits[-2:] == [0.1, 0.1]
    looked(pace, 100.5, 1)
    assert pace.read_at == pytest.approx(100.51)


def test_a_sweep_follows_after_its_interval(pace: PollSchedule) -> None:
    assert not looked(pace, 100.0 + SWEEP_INTERVAL - 0.01, 0)
    assert looked(pace, 100.0 + SWEEP_INTERVAL, 0)


def test_a_sweep_that_takes_long_leaves_the_table_alone_for_longer(
    pace: PollSchedule,
) -> None:
    assert looked(pace, 102.0, 0, took=3.0)

    assert not looked(pace, 105.0 + 3.0 * SWEEP_REST_FACTOR - 0.01, 0)
    assert looked(pace, 105.0 + 3.0 * SWEEP_REST_FACTOR, 0)


def test_after_a_sweep_that_found_some_what_is_next_comes_first_and_then_the_rest(
    pace: PollSchedule,
) -> None:
    assert looked(pace, 102.0, 10)

    assert not looked(pace, 102.0, 10)
    assert not looked(pace, 102.0, 3)
    assert pace.read_at == 0.0
    assert looked(pace, 102.0, 0)
    assert not looked(pace, 102.0, 0)
