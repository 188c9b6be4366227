"""
What the ledger relay has to know of amounts and timing.

`harvester.py` fills it from the settings of the outbox.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..relay.poison import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """How much, how often and how long. Durations are seconds."""

    batch: int
    """Records of one transaction at most."""
    delivery_timeout: float
    """For the records of one transaction to be acknowledged."""
    busy_interval: float
    """After a look that found rows but not a full page."""
    idle_interval: float
    """Between two looks at an empty table, at most."""
    database_deadline: float
    """A leader without its table for this long resigns."""
    retry: RetryPolicy
