"""
Tracks which other clusters' records this one relays at present, for monitoring.

A takeover lasts until none of its origin's records has been found for as long as one
rank waits: a cluster whose application is still alive writes more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..message.record import Record


class TakeoverChange(NamedTuple):
    """A takeover has begun, or is over."""

    leader_id: str
    origin: int
    """The cluster that has written the records."""
    records: int
    """Found so far: at first, those that made it begin."""
    has_ended: bool


class Takeovers:
    """
    The takeovers of one leader; owned by its dispatching thread.

    Args:
        this_cluster: its id.
        quiet: seconds without a record after which a takeover is over.
    """

    def __init__(self, *, this_cluster: int, quiet: float) -> None:
        self._this_cluster = this_cluster
        self._quiet = quiet
        self._leader_id = ""
        self._records: Counter[int] = Counter()
        self._last_at: dict[int, float] = {}
        self._changes: list[TakeoverChange] = []

    def found(self, leader_id: str, records: Iterable[Record], now: float) -> None:
        """Take note of the rows of a page; monotonic seconds."""
        self._leader_id = leader_id
        origins = Counter(record.cluster_id for record in records)
        del origins[self._this_cluster]
        for origin, count in origins.items():
            if origin not in self._last_at:
                self._changes.append(
                    TakeoverChange(leader_id, origin, count, has_ended=False)
                )
            self._records[origin] += count
            self._last_at[origin] = now
        self._end(lambda last_at: now - last_at >= self._quiet)

    def stop(self) -> None:
        """End all: this process leads no more."""
        self._end(lambda _: True)

    def changes(self) -> list[TakeoverChange]:
        """Return the changes since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def _end(self, is_over: Callable[[float], bool]) -> None:
        over = [origin for origin, at in self._last_at.items() if is_over(at)]
        for origin in over:
            del self._last_at[origin]
            count = self._records.pop(origin)
            self._changes.append(
                TakeoverChange(self._leader_id, origin, count, has_ended=True)
            )
