"""
When to look at the table: often while it is busy, seldom while it is quiet.

A sweep from the head may have to pass many dead rows, so that it is paced by
what the last one took.
"""

from __future__ import annotations

from typing import Final

from .ports import Look

SWEEP_SHARE: Final = 20
"""A sweep may take a twentieth of the time."""

SWEEP_INTERVAL: Final = 1.0
"""Seconds between two sweeps, at least."""


class Pace:
    """
    Times in boot-time seconds, intervals in seconds.

    Args:
        busy_interval: after a look that found rows but not a full page.
        idle_interval: between two looks at an empty table, at most.
    """

    def __init__(self, *, busy_interval: float, idle_interval: float) -> None:
        self._busy = busy_interval
        self._idle = self._interval = idle_interval
        self._began_at = 0.0
        self._sweep_at = 0.0
        self.look_at = 0.0
        """When to read the next page."""
        self.lost_until = 0.0
        """When to try again, after the table could not be read."""

    def restart(self) -> None:
        """Look, and sweep, at once."""
        self.look_at = self._sweep_at = 0.0
        self._interval = self._busy

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
            quieter = min(self._interval * 2, self._idle)
            self._interval = self._busy if look.records else quieter
            is_full = len(look.records) == look.limit
            self.look_at = 0.0 if is_full else self._began_at + self._interval
