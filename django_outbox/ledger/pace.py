"""
When to look at the table, and when to sweep it from the head.

A sweep may have to pass many dead rows, so that it is paced by what the last
one took.
"""

from __future__ import annotations

from typing import Final

from ..relay import pace
from .ports import Look

SWEEP_SHARE: Final = 20
"""A sweep may take a twentieth of the time."""

SWEEP_INTERVAL: Final = 1.0
"""Seconds between two sweeps, at least."""


class Pace(pace.Pace):
    """Plans looks and sweeps; times are boot-time seconds."""

    _began_at = 0.0
    _sweep_at = 0.0
    lost_until = 0.0
    """When to try again, after the table could not be read."""

    def restart(self) -> None:
        """Look, and sweep, at once."""
        super().restart()
        self._sweep_at = 0.0

    def begin(self, look: Look, now: float) -> None:
        """Note that a look begins; it may become a sweep."""
        self._began_at = now
        look.is_sweep = look.limit > 0 and now >= self._sweep_at

    def ended(self, look: Look, now: float) -> None:
        """Plan the next look by what this one found."""
        if look.is_sweep:
            took = now - self._began_at
            self._sweep_at = now + max(SWEEP_INTERVAL, took * SWEEP_SHARE)
        elif look.limit:
            self.found(len(look.records), limit=look.limit, since=self._began_at)
