"""Simulated threads: one at a time, each until it sleeps."""

from __future__ import annotations

import pytest

from tests.fakes.timeline import Timeline

from .threads import Ended, Threads


def test_the_others_go_on_while_one_sleeps() -> None:
    time = Timeline(0.0)
    threads = Threads(time)
    seen: list[tuple[float, str]] = []

    def sleeper(name: str, seconds: float) -> None:
        seen.append((time(), f"{name} falls asleep"))
        threads.sleep(seconds)
        seen.append((time(), f"{name} wakes"))

    time.after(1.0, lambda: sleeper("long", 5.0))
    time.after(2.0, lambda: sleeper("short", 1.0))
    threads.run(10.0)
    threads.close()

    assert seen == [
        (1.0, "long falls asleep"),
        (2.0, "short falls asleep"),
        (3.0, "short wakes"),
        (6.0, "long wakes"),
    ]
    assert time() == 10.0


def test_a_sleep_may_outlast_a_run() -> None:
    time = Timeline(0.0)
    threads = Threads(time)
    woken: list[float] = []

    def sleep() -> None:
        threads.sleep(5.0)
        woken.append(time())

    time.after(1.0, sleep)

    threads.run(3.0)
    assert woken == []
    threads.run(4.0)
    threads.close()

    assert woken == [6.0]


def test_what_an_action_raises_reaches_the_caller() -> None:
    time = Timeline(0.0)
    threads = Threads(time)

    def fail() -> None:
        threads.sleep(1.0)
        raise ValueError("too bad")

    time.after(1.0, fail)
    with pytest.raises(ValueError, match="too bad"):
        threads.run(10.0)
    threads.close()

    assert time() == 2.0


def test_the_end_unwinds_whoever_sleeps() -> None:
    time = Timeline(0.0)
    threads = Threads(time)
    unwound: list[str] = []

    def sleep(name: str) -> None:
        try:
            threads.sleep(100.0)
        except Ended:
            unwound.append(name)
            raise

    time.after(1.0, lambda: sleep("a"))
    time.after(2.0, lambda: sleep("b"))
    threads.run(10.0)
    threads.close()

    assert unwound == ["a", "b"]
