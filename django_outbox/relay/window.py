"""
Limits the records in flight by the rate at which Kafka acknowledges them.

A record waits behind those under way before it: by Little's law, as many seconds as
Kafka takes to acknowledge that many. On a slow broker, or under a quota, that would be
longer than the delivery time-out, and what was sent in vain is sent again.
"""

from __future__ import annotations

from typing import Final

MIN_WINDOW_RECORDS: Final = 200
"""Records that may always be in flight. From there the window doubles with each round
trip."""

DELIVERY_TIMEOUT_DIVISOR: Final = 4
"""A record should wait for at most the delivery time-out divided by this."""


class Window:
    """
    Allows twice what was acknowledged in the last span of time, or so far in this one.

    Twice, so that it also grows where the way to Kafka takes longer than a span.

    Args:
        delivery_timeout: seconds.
    """

    def __init__(self, delivery_timeout: float) -> None:
        self.limit = MIN_WINDOW_RECORDS
        """Records that may be under way."""
        self._span = delivery_timeout / DELIVERY_TIMEOUT_DIVISOR / 2
        self._before = self._count = 0
        """Acknowledged in the last span, and in this one so far."""
        self._began_at = 0.0

    def acknowledged(self, count: int, now: float) -> None:
        """Note records that are in the log now, in monotonic seconds."""
        elapsed = now - self._began_at
        if elapsed >= self._span:
            self._before = self._count if elapsed < 2 * self._span else 0
            self._count, self._began_at = 0, now
        self._count += count
        self.limit = max(MIN_WINDOW_RECORDS, 2 * self._before, 2 * self._count)
