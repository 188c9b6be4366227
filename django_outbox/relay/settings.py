"""
What the marking side has to know of amounts and timing.

`harvester.py` fills it from the settings of the outbox.
"""

from __future__ import annotations

from dataclasses import dataclass

from .poison import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings:
    """How much, how often and how long. Durations are seconds."""

    max_in_flight: int
    """W: records produced and not settled."""
    mark_batch: int
    """Rows that one mark claims at most."""
    busy_interval: float
    """After a mark that found rows but not a full batch."""
    idle_interval: float
    """Between two marks of an empty table, at most."""
    database_deadline: float
    """A leader without its table for this long resigns."""
    retry: RetryPolicy
