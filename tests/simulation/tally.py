"""
Many histories on all processors, and what they came to together.

The tests assert on a `Tally`; `python -m tests.simulation` prints it.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Final

from .history import play
from .world import Outcome

CHUNK: Final = 25
"""Histories that a worker plays before it reports."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """The sum of many histories."""

    histories: int = 0
    seconds: float = 0.0
    """Of processor time, over all workers."""
    broken: dict[int, str] = field(default_factory=dict)
    """Seeds of histories in which a promise broke, and which."""
    profiles: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count one history."""
        self.histories += 1
        self.profiles[outcome.plan.profile] += 1
        self.faults += outcome.faults
        self.figures += outcome.figures
        self._lengthen(outcome.longest)
        if outcome.broken:
            self.broken[outcome.plan.seed] = outcome.broken

    def merge(self, other: Tally) -> None:
        """Take another worker's sum in."""
        self.histories += other.histories
        self.seconds += other.seconds
        self.broken |= other.broken
        self.profiles += other.profiles
        self.faults += other.faults
        self.figures += other.figures
        self._lengthen(other.longest)

    def _lengthen(self, longest: dict[str, float]) -> None:
        for kind, seconds in longest.items():
            self.longest[kind] = max(seconds, self.longest.get(kind, 0.0))

    def __str__(self) -> str:
        each = 1000 * self.seconds / max(1, self.histories)
        lines = [f"{self.histories} histories, {each:.1f} ms each"]
        for title, counts in (
            ("profiles", self.profiles),
            ("faults", self.faults),
            ("figures", self.figures),
        ):
            lines.append(f"{title}:")
            lines += [f"  {n:9,} {kind}" for kind, n in sorted(counts.items())]
        lines.append("longest, in simulated seconds:")
        lines += [f"  {s:9.3f} {kind}" for kind, s in sorted(self.longest.items())]
        lines.append(f"broken promises: {len(self.broken)}")
        lines += [f"  seed {seed}: {what}" for seed, what in self.broken.items()]
        return "\n".join(lines)


def play_all(seeds: range, delivery: str) -> Tally:
    """Play histories one after the other, in this process."""
    tally = Tally()
    began = time.process_time()
    for seed in seeds:
        tally.add(play(seed, delivery))
    tally.seconds = time.process_time() - began
    return tally


def workers(
    jobs: int | None = None, *, is_background: bool = False
) -> ProcessPoolExecutor:
    """Make a pool with a process for each processor, perhaps of low priority."""
    return ProcessPoolExecutor(
        jobs or os.cpu_count(),
        # A fork would copy the drivers' clients and threads of other tests.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_step_back if is_background else None,
    )


def _step_back() -> None:
    """Leave the processors to others, also to those of other sessions."""
    os.nice(19)
    os.setsid()
    # Where Linux shares processors out by sessions, a priority counts within one only.
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("19", "ascii")


def in_parallel(
    pool: ProcessPoolExecutor, seeds: range, delivery: str
) -> Iterator[Tally]:
    """Play histories on all workers; yield the sum so far after each chunk."""
    total = Tally()
    chunks = [seeds[n : n + CHUNK] for n in range(0, len(seeds), CHUNK)]
    for tally in pool.map(play_all, chunks, repeat(delivery)):
        total.merge(tally)
        yield total


def explain(seed: int, delivery: str, *, lines: int = 60) -> str:
    """Play a history again and tell its plan and its last part."""
    outcome = play(seed, delivery, is_tracing=True)
    return "\n".join(
        [
            str(outcome.plan),
            "...",
            *outcome.trace[-lines:],
            outcome.broken or "every promise held",
            "replay: python -m tests.simulation"
            f" --delivery {delivery} --seed {seed} --trace",
        ]
    )
