"""
Simulated time: a clock that moves only when a test moves it.

Actions that are planned for a moment run when the clock passes it, so long
histories of time-outs take no real time and are always the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Timeline:
    """Callable as a clock; an action may itself plan actions and advance the time."""

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._plan: list[tuple[float, int, Callable[[], object]]] = []
        self._sequence = count()

    def __call__(self) -> float:
        """Return the current time in seconds."""
        return self._now

    def after(self, delay: float, action: Callable[[], object]) -> None:
        """Plan an action; those of one moment run in the order planned."""
        entry = (self._now + max(0.0, delay), next(self._sequence), action)
        heapq.heappush(self._plan, entry)

    def advance(self, seconds: float) -> None:
        """Let time pass; run the actions that are planned for it."""
        end = self._now + seconds
        while self._plan and self._plan[0][0] <= end:
            when, _, action = heapq.heappop(self._plan)
            self._now = max(self._now, when)
            action()
        self._now = max(self._now, end)
