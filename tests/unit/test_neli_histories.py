"""
Two terms are never trusted at once, whatever happens to the processes.

A thousand random histories of several electors over the fake group, which
enforces the coordinator's rules. The simulated clock is the true time: a term
counts as trusted while its holder could act on it, paused or not.
"""

from __future__ import annotations

from random import Random

import pytest

from django_outbox.election.elector import Elector
from django_outbox.election.settings import ElectionSettings
from django_outbox.election.term import LeaderTerm
from django_outbox.events import Event, LeaderAcquired
from tests.fakes.membership import FakeGroup
from tests.fakes.timeline import Timeline

SESSION_TIMEOUT = 3.0
HEARTBEAT_TIMEOUT = 1.4
HISTORIES = 1000
DURATION = 20.0
"""Seconds of trouble in one history."""
RECOVERY = 25.0
"""Seconds without trouble after which one process must lead."""


class History:
    """One group, its processes, and the dice."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.time = Timeline()
        self.group = FakeGroup(
            self.time, session_timeout=SESSION_TIMEOUT, latency=self.latency
        )
        self.is_troubled = True
        self.leader_ids: list[str] = []
        count = self.dice.randint(2, 4)
        self.processes = [Process(self, f"p{i}") for i in range(count)]

    def latency(self) -> float | None:
        """
        Mostly a millisecond, sometimes seconds, sometimes never.

        A round trip above the session time-out ends a real connection.
        """
        luck = self.dice.random() if self.is_troubled else 1.0
        if luck < 0.01:
            return None
        if luck < 0.05:
            return self.dice.uniform(0.0, SESSION_TIMEOUT / 2)
        return 0.001

    def trusted(self) -> list[str]:
        """Names of the processes that may act at this very moment."""
        now = self.time()
        return [
            process.name
            for process in self.processes
            if (term := process.elector.leadership.term) and term.remaining(now) > 0
        ]

    def check(self) -> None:
        """Terms begin and grow in steps only, so that this sees every overlap."""
        trusted = self.trusted()
        assert len(trusted) <= 1, f"{trusted} are trusted at {self.time():.3f}"

    def note(self, event: Event) -> None:
        if isinstance(event, LeaderAcquired):
            assert event.leader_id is not None
            self.leader_ids.append(event.leader_id)


class Process:
    """An elector, the thread that steps it, and what befalls it."""

    def __init__(self, history: History, name: str) -> None:
        self.name = name
        self.history = history
        self.time, self.dice = history.time, history.dice
        self.membership = history.group.member(name)
        self.elector = self.new_elector()
        self.is_stopped = False
        self.is_busy = False
        self.time.after(self.dice.uniform(0.0, 2.0), self.step)

    def new_elector(self) -> Elector:
        settings = ElectionSettings(
            name=self.name, heartbeat_timeout=HEARTBEAT_TIMEOUT, candidate_timeout=8.0
        )
        return Elector(
            settings,
            self.membership,
            clock=self.time,
            on_event=self.history.note,
            barrier=self.drain,
            can_join=lambda: self.dice.random() < 0.9,
            wait=lambda _: None,
        )

    def step(self) -> None:
        self.time.after(self.dice.uniform(0.02, 0.15), self.step)
        if self.is_stopped or self.is_busy:
            return
        self.is_busy = True
        self.elector.step(0)
        self.is_busy = False
        self.history.check()

    def drain(self, _: LeaderTerm) -> None:
        """Hold a revocation up, mostly shortly; the others live on."""
        self.time.advance(self.dice.choice([0.0, 0.1, 0.5, 2.0, 8.0]))

    def pause(self, duration: float) -> None:
        if not self.is_stopped and not self.is_busy:
            self.is_stopped = True
            self.membership.freeze()
            self.time.after(duration, self.resume)

    def resume(self) -> None:
        self.is_stopped = False
        self.membership.thaw()

    def crash(self) -> None:
        """End without a word, and start again as a new process."""
        if not self.is_stopped and not self.is_busy:
            self.membership.crash()
            self.elector = self.new_elector()

    def cut(self, duration: float) -> None:
        self.membership.cut()
        self.time.after(duration, lambda: self.membership.cut(is_cut=False))

    def stop(self) -> None:
        """Leave in good order, and come again."""
        if not self.is_stopped and not self.is_busy:
            self.is_busy = True
            self.elector.stop()
            self.is_busy = False

    def resign(self) -> None:
        if term := self.elector.leadership.term:
            self.elector.leadership.resign(term.leader_id, reason="the dice said so")


def trouble(history: History) -> None:
    """Let something befall one process, or the whole group."""
    dice = history.dice
    leaders = [p for p in history.processes if p.name in history.trusted()]
    process = dice.choice(leaders or history.processes)
    if dice.random() < 0.3:
        process = dice.choice(history.processes)
    duration = dice.choice([0.3, HEARTBEAT_TIMEOUT, SESSION_TIMEOUT, 7.0])
    dice.choice(
        [
            lambda: process.pause(duration),
            lambda: process.pause(duration),
            lambda: process.cut(duration),
            lambda: process.cut(duration),
            process.crash,
            process.stop,
            process.resign,
            history.group.coordinator.move,
            history.group.coordinator.fail_over,
            lambda: history.group.write("noise"),
        ]
    )()


def play(seed: int) -> History:
    history = History(seed)
    calm_from = history.time() + DURATION
    while history.time() < calm_from:
        trouble(history)
        history.time.advance(history.dice.expovariate(0.7))
    history.is_troubled = False
    deadline = history.time() + RECOVERY
    while history.time() < deadline and not history.trusted():
        history.time.advance(0.5)
    return history


@pytest.mark.parametrize("block", range(10))
def test_two_terms_are_never_trusted_at_once(block: int) -> None:
    """At no moment may two processes act; after the trouble one of them may."""
    size = HISTORIES // 10
    for seed in range(block * size, (block + 1) * size):
        try:
            history = play(seed)
        except AssertionError as error:
            raise AssertionError(f"in history {seed}: {error}") from error
        assert len(history.trusted()) == 1, f"nobody leads after history {seed}"
        ids = history.leader_ids
        assert len(ids) == len(set(ids)), f"a leader id twice in history {seed}"
