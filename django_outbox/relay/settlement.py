"""
The outcome of deliveries, and what the table has done about it.

The engine makes a settlement, the settler carries it out with as many statements as
that takes, and its outcome comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..message.record import Failure, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """
    Acknowledged and failed records.

    All were produced under one leader id, which limits every write.
    """

    leader_id: str
    """UUID as text."""
    acknowledged: list[Record] = field(default_factory=list)
    """Records that Kafka has: to purge."""
    failed: list[Failure] = field(default_factory=list)
    """Failures to store in the rows; their keys stay blocked until they are reset."""
    poisoned: list[Failure] = field(default_factory=list)
    """Records to move to the parked table."""
    tries: int = 0
    """Attempts so far at a rest."""
    retry_at: float = 0.0
    """Monotonic seconds of the next attempt at a rest."""

    @property
    def is_rest(self) -> bool:
        """Whether these are the rows that another settlement has left."""
        return self.tries > 0

    def __len__(self) -> int:
        return len(self.acknowledged) + len(self.failed) + len(self.poisoned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The outcome of one settlement, which the table now holds but for its rest."""

    settlement: Settlement
    acknowledged: Sequence[Record]
    """Records whose rows have left the table."""
    poisoned: Sequence[Failure]
    """Records that were moved to the parked table."""
    purged: int
    """Rows that the purge deleted."""
    parked: int
    """Rows that were moved to the parked table."""
    rest: Settlement | None = None
    """Rows that the table did not release; they are retried apart from all others."""

    @property
    def failed(self) -> Sequence[Failure]:
        """Failures that were stored."""
        return self.settlement.failed
