"""A Prometheus counter of what events count from the start of the process."""

from __future__ import annotations

from prometheus_client import Counter


class Total(Counter):
    """Grows to what was counted elsewhere."""

    def reach(self, count: int) -> None:
        """Raise it to a count that never falls."""
        self.inc(count - self._value.get())
