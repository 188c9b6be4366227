"""
Simulated time: a clock that moves only when a test moves it.

What is planned for a moment happens while the clock passes that moment, so
that whole histories of time-outs run in no time and always the same way.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Timeline:
    """Callable as a clock; an action may itself plan, and advance, further."""

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._plan: list[tuple[float, int, Callable[[], object]]] = []
        self._sequence = count()

    def __call__(self) -> float:
        """Return the present moment in seconds."""
        return self._now

    def after(self, delay: float, action: Callable[[], object]) -> None:
        """Plan an action; those of one moment happen in the order planned."""
        entry = (self._now + max(0.0, delay), next(self._sequence), action)
        heapq.heappush(self._plan, entry)

    def advance(self, seconds: float) -> None:
        """Let time pass, with all that is planned for it."""
        end = self._now + seconds
        while self._plan and self._plan[0][0] <= end:
            when, _, action = heapq.heappop(self._plan)
            self._now = max(self._now, when)
            action()
        self._now = max(self._now, end)
