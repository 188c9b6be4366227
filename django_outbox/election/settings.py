"""
What an election has to know about its process and its timing.

`harvester/harvester.py` fills it from the settings of the outbox, whose rules keep the
durations in proportion.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    """One process that stands for one shard. Durations are seconds."""

    name: str
    """The process, in heartbeats, events and logs."""
    shard: int = 0
    """The partition of the leader topic whose owner leads."""
    heartbeat_timeout: float = 2.5
    """Leadership is proven this long after a heartbeat was sent."""
    heartbeat_interval: float = 0.5
    """Between two heartbeats, once the earlier one is proven."""
    retry_interval: float = 0.1
    """Between two heartbeats while the earlier one is not proven."""
    candidate_timeout: float = 30.0
    """A candidate that proves nothing for this long lets another one try."""
    join_backoff: float = 0.25
    """Before a second try to join; doubles with each failure."""
    join_backoff_max: float = 2.0
    """Between two tries to join, at most."""
    join_interval: float = 0.2
    """Between two looks at a group that had better be left alone just now."""
    resign_backoff: float = 1.0
    """After giving up, leave the field to the others for this long."""
