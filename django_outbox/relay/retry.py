"""
What becomes of a record that Kafka did not take: wait and retry, or park.

`Relay` asks after each failed delivery. A poison record is one whose own
content or destination is at fault, so that no retry helps until somebody
changes the record, the topic or a permission.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..exceptions import DeliveryFailed, RecordPoisoned
from ..message.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to retry a failed key, and when to park its record instead."""

    backoff: float
    """Seconds before the first retry."""
    backoff_max: float
    """Seconds between two retries, at most."""
    parks_poison: bool
    """Whether a poison record is parked; otherwise it blocks its key."""
    park_after: int
    """Failed attempts before a poison record is parked."""

    def delay(self, attempts: int) -> float:
        """Seconds to wait after this many failed attempts, counted from 1."""
        # SQL may have set the counter to anything.
        doublings = min(max(attempts, 1) - 1, 32)
        return min(self.backoff * 2.0**doublings, self.backoff_max)

    def should_park(self, record: Record, error: DeliveryFailed) -> bool:
        """Whether this failure is the one that sets the record aside."""
        return (
            self.parks_poison
            and isinstance(error, RecordPoisoned)
            and error.is_certain
            and max(record.attempts, 0) + 1 >= self.park_after
        )
