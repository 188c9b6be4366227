"""When to read the table: often while it is busy, rarely while it is quiet."""

from __future__ import annotations

import logging
from typing import Final

logger = logging.getLogger(__name__)

IDLE_GROWTH: Final = 1.25
"""Factor by which each pause at an empty table is longer than the last. A record that
arrives after a quiet time waits for at most a quarter of that time."""

SWEEP_REST_FACTOR: Final = 20
"""Each sweep is followed by a rest of this many times its duration, so that sweeps take
about a twentieth of the time."""

SWEEP_INTERVAL: Final = 1.0
"""Seconds between two sweeps, at least."""


class PollSchedule:
    """
    Times in monotonic seconds, intervals in seconds.

    Args:
        busy_interval: after a page that had rows but not a full page.
        idle_interval: between two pages of an empty table, at most.
    """

    def __init__(self, *, busy_interval: float, idle_interval: float) -> None:
        self._busy = self._interval = busy_interval
        self._idle = idle_interval
        self.read_at = 0.0
        """When to read next."""
        self.lost_until = 0.0
        """When to try again, after the table could not be read."""
        self.is_behind = False
        """Whether the last page was full."""
        self.sweep_at = 0.0
        """When to sweep next."""
        self._requested_at = 0.0
        self._is_more_left = False

    def restart(self) -> None:
        """Read, and sweep, at once, as at a busy table."""
        self._interval, self.read_at = self._busy, 0.0
        self.sweep_at = 0.0

    def must_sweep(self, now: float) -> bool:
        """Whether the next page is to be a repair scan."""
        return now >= self.sweep_at

    def requested(self, now: float) -> None:
        """Note when a page is requested."""
        self._requested_at = now

    def found(self, rows: int, *, limit: int) -> None:
        """Plan the next page: at once after a full page, ever later after none."""
        quieter = min(self._interval * IDLE_GROWTH, self._idle)
        self._interval = self._busy if rows else quieter
        self.is_behind = rows == limit
        next_at = self._requested_at + self._interval
        self.read_at = 0.0 if self.is_behind else next_at
        if self._is_more_left and rows < limit:
            # The last sweep found rows: at the end of the table, sweep again at once.
            self.read_at = self.sweep_at = 0.0

    def swept(self, rows: int, *, now: float, has_more: bool = False) -> None:
        """
        Plan the next sweep by what this one took: it may pass many dead rows.

        Args:
            has_more: whether the next one follows at once.
        """
        took = now - self._requested_at
        rest = 0.0 if has_more else max(SWEEP_INTERVAL, took * SWEEP_REST_FACTOR)
        self.sweep_at = now + rest
        self._is_more_left = bool(rows)


def report_sweep(found: int) -> None:
    """Log that a repair scan has found rows which nothing else had shown."""
    if found:
        logger.info(
            "A repair scan found %d rows below the read position",
            found,
            extra={"action": "swept", "records": found},
        )
