"""
How often a consumer tries a message, and how long it waits in between.

A failing message holds up its process while it is retried, which keeps the
order of its key. When its attempts are spent, it becomes a dead letter.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..settings.options import OutboxSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to retry, and when to give up."""

    attempts: int
    """Failed attempts before a message becomes a dead letter; 0 = no limit."""
    backoff: float
    """Seconds before the first retry; doubles with each retry."""
    backoff_max: float
    """Seconds between two retries, at most."""

    @classmethod
    def of(cls, options: OutboxSettings) -> RetryPolicy:
        """Read the policy from the settings."""
        return cls(
            attempts=options.CONSUMER_ATTEMPTS,
            backoff=options.RETRY_BACKOFF,
            backoff_max=options.RETRY_BACKOFF_MAX,
        )

    def delay(self, attempts: int) -> float:
        """Return the seconds to wait after this many failed attempts, from 1."""
        doublings = min(attempts - 1, 32)
        return min(self.backoff * 2.0**doublings, self.backoff_max)

    def is_spent(self, attempts: int) -> bool:
        """Whether this failed attempt was the last."""
        return 0 < self.attempts <= attempts
