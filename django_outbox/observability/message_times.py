"""How long messages take, as a histogram; independent of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

BOUNDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds of the buckets, in seconds: a handler takes milliseconds, or waits for
another service."""


class MessageTimes:
    """One thread adds times; any thread may read them."""

    def __init__(self, bounds: Sequence[float] = BOUNDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._seconds = 0.0

    def include(self, other: MessageTimes) -> None:
        """Add all times of another histogram with the same bounds."""
        counts = zip(self._counts, other._counts, strict=True)
        self._counts = [sum(both) for both in counts]
        self._seconds += other._seconds

    def add(self, seconds: float, *, messages: int = 1) -> None:
        """Add a time; for several messages that took it together, their mean."""
        mean = seconds / messages
        self._counts[bisect_left(self._bounds, mean)] += messages
        self._seconds += seconds

    def cumulated(self) -> tuple[list[tuple[str, float]], float]:
        """Return how many messages took at most each bound, and the sum of seconds."""
        bounds = [*map(str, self._bounds), "+Inf"]
        counts = accumulate(self._counts.copy())
        return [*zip(bounds, map(float, counts), strict=True)], self._seconds
