"""How often something that failed is tried, and how long to wait in between."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to retry, and when to give up."""

    attempts: int
    """Failed attempts before a poison record is parked, or before a message becomes a
    dead letter; 0: never."""
    backoff: float
    """Seconds before the first retry; doubles with each retry."""
    backoff_max: float
    """Seconds between two retries, at most."""

    def delay(self, attempts: int) -> float:
        """Return the seconds to wait after this many failed attempts, from 1."""
        # SQL may have set the counter to anything.
        doublings = min(max(attempts, 1) - 1, 32)
        return min(self.backoff * 2.0**doublings, self.backoff_max)

    def is_spent(self, attempts: int) -> bool:
        """Whether this failed attempt was the last."""
        return 0 < self.attempts <= max(attempts, 1)
