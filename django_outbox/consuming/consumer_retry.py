"""
How often a message is tried, and with which pauses.

A failing message holds up its process while it is retried, so that the order
of its key stands; when its attempts are spent, it is set aside.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..settings.options import OutboxSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to retry, and when to give up."""

    attempts: int
    """Failed attempts before a message is given up; 0 = never."""
    backoff: float
    """Seconds before the first retry; doubles with each."""
    backoff_max: float
    """Seconds between two retries, at most."""

    @classmethod
    def of(cls, options: OutboxSettings) -> RetryPolicy:
        """Return what the settings say."""
        return cls(
            attempts=options.CONSUMER_ATTEMPTS,
            backoff=options.RETRY_BACKOFF,
            backoff_max=options.RETRY_BACKOFF_MAX,
        )

    def delay(self, attempts: int) -> float:
        """Seconds to wait after this many failed attempts, counted from 1."""
        doublings = min(attempts - 1, 32)
        return min(self.backoff * 2.0**doublings, self.backoff_max)

    def is_spent(self, attempts: int) -> bool:
        """Whether this attempt was the last."""
        return 0 < self.attempts <= attempts
