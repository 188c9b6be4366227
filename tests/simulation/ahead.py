"""
Histories that are played while other tests run.

Playing them keeps all processors busy for minutes, and most other tests wait
for servers most of the time. So the workers begin when the tests are collected,
at the lowest priority, and the tests of this folder come last.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Future
from itertools import chain
from typing import TypeVar

from .history import play
from .hunts import hunt_for
from .tally import CHUNK, Tally, play_all, workers
from .world import Outcome

HUNT: int = 3000
"""Within how many histories of its profile a deliberate bug must be found."""

PATIENCE: float = 600.0
"""Seconds in which not one worker has finished anything: they do not work any more."""

_Histories = tuple[range, str]

_Result = TypeVar("_Result")


class Histories:
    """Plays on all processors; each request may be begun ahead."""

    def __init__(self) -> None:
        self._pool = workers(is_background=True)
        # What a test waits for at once does not queue behind thousands of histories.
        self._traces = workers(1)
        self._plays: dict[_Histories, list[Future[Tally]]] = {}
        self._hunts: dict[str, Future[Outcome | None]] = {}

    def begin(self, seeds: range, delivery: str) -> list[Future[Tally]]:
        """Play these histories, unless they have been begun."""
        key = seeds, delivery
        if key not in self._plays:
            chunks = [seeds[n : n + CHUNK] for n in range(0, len(seeds), CHUNK)]
            self._plays[key] = [
                self._pool.submit(play_all, chunk, delivery) for chunk in chunks
            ]
        return self._plays[key]

    def tally(self, seeds: range, delivery: str) -> Tally:
        """Return what these histories came to."""
        total = Tally()
        for future in self.begin(seeds, delivery):
            total.merge(self._wait_for(future))
        return total

    def begin_hunt(self, name: str) -> Future[Outcome | None]:
        """Look for a deliberate bug, unless that has been begun."""
        if name not in self._hunts:
            self._hunts[name] = self._pool.submit(hunt_for, name, HUNT)
        return self._hunts[name]

    def hunted(self, name: str) -> Outcome | None:
        """Return what has given a deliberate bug away; None: nothing has."""
        return self._wait_for(self.begin_hunt(name))

    def trace(self, seed: int, delivery: str) -> Outcome:
        """Play one history in another process, with its trace."""
        return self._traces.submit(play, seed, delivery, is_tracing=True).result(
            PATIENCE
        )

    def _wait_for(self, future: Future[_Result]) -> _Result:
        """Wait while workers finish histories, those of other tests too."""
        while True:
            before = self._finished()
            try:
                return future.result(timeout=PATIENCE)
            except TimeoutError:
                if self._finished() == before:
                    raise

    def _finished(self) -> int:
        plays = chain.from_iterable(self._plays.values())
        return sum(f.done() for f in plays) + sum(
            f.done() for f in self._hunts.values()
        )

    def close(self) -> None:
        """End what nobody has waited for."""
        for pool in (self._pool, self._traces):
            pool.shutdown(wait=False, cancel_futures=True)
        # Ctrl-C does not reach workers that have a session of their own.
        for worker in multiprocessing.active_children():
            worker.terminate()
