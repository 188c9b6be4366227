"""
The scoreboard: what is in flight, in all and by lane, and who waits behind it.

`Relay` asks it which record may be produced next. A lane (topic, key) is
*busy* from the moment one of its records is ready until that record is
settled; records that are marked meanwhile queue behind it in their order.
Of ready records, those that were written in this cluster go first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from ...message.record import Lane, Record, size_of


class InFlight:
    """
    Counts records produced and not settled; holds at most one a lane.

    Args:
        here: the cluster whose records go first.
    """

    def __init__(self, *, here: int = 0) -> None:
        self.count = 0
        """Records produced and not settled (the reference's inFlightRecords)."""
        self.queued = 0
        """Records marked and not produced."""
        self.foreign = 0
        """Of both, records that other clusters have left."""
        self.bytes = 0
        """Of both, their values."""
        self._here = here
        self._ids: set[int] = set()
        """Of all records queued or in flight."""
        self._ready: deque[Record] = deque()
        self._ready_foreign: deque[Record] = deque()
        self._busy: dict[Lane, deque[Record] | None] = {}

    @property
    def ids(self) -> frozenset[int]:
        """Of all records queued or in flight, as they are now."""
        return frozenset(self._ids)

    @property
    def ready(self) -> int:
        """Of this cluster's records, those that wait for nothing but their turn."""
        return len(self._ready)

    def holds_any(self, ids: Collection[int]) -> bool:
        """Whether one of these is queued or in flight already."""
        return not self._ids.isdisjoint(ids)

    def enqueue(self, records: Sequence[Record]) -> None:
        """Queue marked records: ready when their lane is free, else behind it."""
        busy, here = self._busy, self._here
        ready, foreign = self._ready, self._ready_foreign
        for record in records:
            lane = (record.topic, record.key)
            if is_foreign := record.cluster_id != here:
                self.foreign += 1
            if lane not in busy:
                busy[lane] = None
                (foreign if is_foreign else ready).append(record)
            elif (followers := busy[lane]) is None:
                busy[lane] = deque((record,))
            else:
                followers.append(record)
        self._ids.update([record.id for record in records])
        self.queued += len(records)
        self.bytes += size_of(records)

    def take(self, most: int) -> list[Record]:
        """Raise the barriers of the next ready records' lanes and count them."""
        taken: list[Record] = []
        for ready in (self._ready, self._ready_foreign):
            count = min(most - len(taken), len(ready))
            taken += [ready.popleft() for _ in range(count)]
        self.queued -= len(taken)
        self.count += len(taken)
        return taken

    def put_back(self, records: Sequence[Record]) -> None:
        """Put back, at the front, records that the producer did not accept."""
        self.queued += len(records)
        self.count -= len(records)
        for record in reversed(records):
            is_own = record.cluster_id == self._here
            (self._ready if is_own else self._ready_foreign).appendleft(record)

    def settle(self, records: Sequence[Record]) -> None:
        """Count records out and lower their lanes' barriers for the next ones."""
        busy, here = self._busy, self._here
        ready, foreign = self._ready, self._ready_foreign
        for record in records:
            lane = (record.topic, record.key)
            followers = busy.get(lane)
            if followers:
                follower = followers.popleft()
                (ready if follower.cluster_id == here else foreign).append(follower)
            else:
                busy.pop(lane, None)
        self.count -= len(records)
        self._forget(records)

    def lowest(self, record: Record) -> int:
        """Return the lowest id of a record in flight and of who waits behind it."""
        followers = self._busy.get((record.topic, record.key)) or ()
        return min([record.id, *[follower.id for follower in followers]])

    def drop_followers(self, lane: Lane) -> int:
        """Forget who waits behind the record in flight; return how many."""
        followers = self._busy.get(lane)
        if not followers:
            return 0
        self._busy[lane] = None
        self._forget(followers)
        self.queued -= len(followers)
        return len(followers)

    def drop_queue(self) -> None:
        """Forget all that is marked and not produced; lanes in flight stay."""
        for ready in (self._ready, self._ready_foreign):
            self._forget(ready)
            for record in ready:
                self.drop_followers(record.lane)
                self._busy.pop(record.lane, None)
            ready.clear()
        for lane in self._busy:
            self.drop_followers(lane)
        self.queued = 0

    def _forget(self, records: Collection[Record]) -> None:
        self._ids.difference_update([record.id for record in records])
        self.bytes -= size_of(records)
        if self.foreign:
            here = self._here
            self.foreign -= sum(record.cluster_id != here for record in records)
