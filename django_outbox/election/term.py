"""
One leader id with its trust window: for how long leadership is proven.

The relay checks `remaining()` before each page, batch and commit.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace


def new_id() -> str:
    """Return a UUID as text: a leader id or a nonce, never used before."""
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderTerm:
    """Immutable: extending or refreshing a term returns another one."""

    leader_id: str
    """UUID as text, new at each acquire and refresh, never reused."""
    shard: int
    """The partition of the leader topic."""
    acquired_at: float
    """Monotonic time (CLOCK_BOOTTIME, seconds) of the first proof."""
    trusted_until: float
    """Monotonic time (CLOCK_BOOTTIME, seconds) up to which leadership is proven."""

    @classmethod
    def begin(cls, *, shard: int, now: float, until: float) -> LeaderTerm:
        """Start a term that is proven from `now` to `until`."""
        return cls(
            leader_id=new_id(), shard=shard, acquired_at=now, trusted_until=until
        )

    def remaining(self, now: float) -> float:
        """Seconds for which leadership is proven; zero or less: do not act."""
        return self.trusted_until - now

    def extended(self, until: float) -> LeaderTerm:
        """Return this term, proven up to `until`; a proof never shortens it."""
        return replace(self, trusted_until=max(self.trusted_until, until))

    def refreshed(self) -> LeaderTerm:
        """Return a term with a new leader id and the same window."""
        return replace(self, leader_id=new_id())
