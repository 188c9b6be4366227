"""
The name, the shards and the timing of one process in an election.

The rules of the outbox's settings keep the durations in proportion.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    """One process in the election of each shard. Durations are seconds."""

    name: str
    """The process, in heartbeats, events and logs."""
    shards: int = 1
    """Partitions of the leader topic; the owner of one leads that shard."""
    heartbeat_timeout: float = 2.5
    """Leadership is proven this long after a heartbeat was sent."""
    heartbeat_interval: float = 0.5
    """Between two heartbeats, once the earlier one is proven."""
    retry_interval: float = 0.1
    """Between two heartbeats while the earlier one is not proven. After a
    `heartbeat_timeout` without proof, a candidate goes back to `heartbeat_interval`."""
    candidate_timeout: float = 30.0
    """After so long without a proof, a candidate leaves the group."""
    join_backoff: float = 0.25
    """Before the second attempt to join; doubles with each failure."""
    join_backoff_max: float = 2.0
    """Between two attempts to join, at most."""
    join_interval: float = 0.2
    """Between two attempts while joining would disturb the group."""
    resign_backoff: float = 1.0
    """Before joining again after a resignation."""
