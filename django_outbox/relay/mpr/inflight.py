"""
What is in flight, in all and by key, and which records wait for their turn.

`Relay` asks it which records may be produced next. How many records of one key may be
in flight is `per_key`: one, as MP/R has it, or any number (the default relay). Even
then a key has one at a time at first, until a record of it was acknowledged with an
offset: a partition that is still coming up can acknowledge a record and lose it
(hazard H31), and a later one of its key must not be in the log by then. The same
holds for a key with a record that has failed.

Of the records that may go, those that were written in this cluster go first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from ...message.record import OrderingKey, Record, size_of

MAX_PROVEN: Final = 10_000
"""Keys whose partition is known to work; beyond that, all of them are proven again."""


class _Key:
    """The records of one key that were read and are not settled."""

    unsettled = 0
    """Ready, produced or acknowledged, and still in the table."""
    is_single = False
    """Whether one of these is sent apart from all others of its key."""
    waiting: deque[Record] | tuple[()] = ()
    """In their order, behind these."""


class InFlight:
    """
    Counts records produced and not settled, and holds the ones behind them.

    Args:
        this_cluster: the cluster whose records go first.
        per_key: records of one key in flight at most; 0: any number.
    """

    def __init__(self, *, this_cluster: int = 0, per_key: int = 1) -> None:
        self.count = 0
        """Records produced and not settled (the reference's inFlightRecords)."""
        self.queued = 0
        """Records marked and not produced."""
        self.of_others = 0
        """Of both, records that other clusters have left."""
        self.bytes = 0
        """Of both, their values."""
        self.unreported: dict[int, tuple[Record, float]] = {}
        """By id, records of which the producer has not told yet, and since when they
        are under way (monotonic seconds); the oldest first."""
        self.apart: set[int] = set()
        """Ids of the records, ready or under way, that are sent apart."""
        self.suspects: set[int] = set()
        """Ids to be sent apart: they, or a neighbour in their batch, were refused."""
        self.refused_topics: set[str] = set()
        """Topics that took none of the last records: theirs are sent apart, too."""
        self._this_cluster = this_cluster
        self._is_pipelined = per_key != 1
        self._ids: set[int] = set()
        """Of all records queued or in flight."""
        self._ready: deque[Record] = deque()
        self._ready_of_others: deque[Record] = deque()
        self._keys: dict[OrderingKey, _Key] = {}
        self._proven: set[OrderingKey] = set()
        """Keys of which this producer has delivered a record."""
        self._dropped: set[OrderingKey] = set()
        """Keys of which no ready record may go any more."""

    @property
    def ids(self) -> frozenset[int]:
        """Of all records queued or in flight, as they are now."""
        self._drop_ready()
        return frozenset(self._ids)

    @property
    def ready(self) -> int:
        """Of this cluster's records, those that wait for nothing but their turn."""
        return len(self._ready)

    def has_unsettled(self, ordering_key: OrderingKey) -> bool:
        """Whether a record of this key is ready, or produced and not settled."""
        return (key := self._keys.get(ordering_key)) is not None and key.unsettled > 0

    def holds_any(self, ids: Collection[int]) -> bool:
        """Whether one of these is queued or in flight already."""
        self._drop_ready()
        return not self._ids.isdisjoint(ids)

    def enqueue(self, records: Sequence[Record]) -> None:
        """Queue marked records: ready when their key lets them, else behind it."""
        keys, this_cluster, proven = self._keys, self._this_cluster, self._proven
        ready, of_others = self._ready, self._ready_of_others
        may_be_refused = self.suspects or self.refused_topics
        for record in records:
            ordering_key = (record.topic, record.key)
            key = keys.get(ordering_key)
            if key is None:
                key = keys[ordering_key] = _Key()
            if key.waiting:
                may_go = False
            elif record.attempts or may_be_refused:
                may_go = self._may_go(record, ordering_key, key)
            else:
                may_go = not key.unsettled or (
                    ordering_key in proven and not key.is_single
                )
            if may_go:
                key.unsettled += 1
                (ready if record.cluster_id == this_cluster else of_others).append(
                    record
                )
            elif key.waiting:
                key.waiting.append(record)
            else:
                key.waiting = deque((record,))
        self._ids.update([record.id for record in records])
        self.of_others += len(records) - [r.cluster_id for r in records].count(
            this_cluster
        )
        self.queued += len(records)
        self.bytes += size_of(records)

    def take(self, most: int, now: float = 0.0) -> list[Record]:
        """Count the next ready records as produced, at monotonic seconds."""
        self._drop_ready()
        taken: list[Record] = []
        for ready in (self._ready, self._ready_of_others):
            count = min(most - len(taken), len(ready))
            taken += [ready.popleft() for _ in range(count)]
        self.unreported.update([(record.id, (record, now)) for record in taken])
        self.queued -= len(taken)
        self.count += len(taken)
        return taken

    def put_back(self, records: Sequence[Record]) -> None:
        """Put back, at the front, records that the producer did not accept."""
        self.queued += len(records)
        self.count -= len(records)
        for record in reversed(records):
            del self.unreported[record.id]
            is_own = record.cluster_id == self._this_cluster
            (self._ready if is_own else self._ready_of_others).appendleft(record)

    def acknowledged(self, records: Sequence[Record]) -> None:
        """Note deliveries: now more records of these keys may go, if any number may."""
        unreported = self.unreported
        for record in records:
            del unreported[record.id]
        if not self._is_pipelined:
            return
        if self.refused_topics:
            self.refused_topics.difference_update([record.topic for record in records])
        if apart := self.apart:
            # They went by another client, and prove nothing of this one.
            records = [record for record in records if record.id not in apart]
        ordering_keys = {(record.topic, record.key): None for record in records}
        if ordering_keys.keys() <= self._proven:
            return
        if len(self._proven) >= MAX_PROVEN:
            self._proven.clear()
        for ordering_key in ordering_keys:
            if ordering_key not in self._proven:
                self._proven.add(ordering_key)
                self._release(ordering_key, self._keys[ordering_key])

    def reported(self, record: Record) -> None:
        """Note that the producer has told of a failure; it is settled later."""
        del self.unreported[record.id]

    def settle(self, records: Sequence[Record]) -> None:
        """Count records out, and let the next ones of their keys go."""
        keys = self._keys
        for record in records:
            ordering_key = (record.topic, record.key)
            key = keys[ordering_key]
            if key.unsettled > 1:
                key.unsettled -= 1
            elif key.waiting:
                key.unsettled = 0
                key.is_single = False
                self._release(ordering_key, key)
            else:
                del keys[ordering_key]
        self.count -= len(records)
        self._forget(records)

    def lowest(self, record: Record) -> int:
        """Return the lowest id of a record in flight and of who waits behind it."""
        key = self._keys.get(record.ordering_key)
        followers = key.waiting if key else ()
        return min([record.id, *[follower.id for follower in followers]])

    def drop_followers(self, ordering_key: OrderingKey) -> int:
        """Forget who waits behind the records in flight; return how many."""
        key = self._keys.get(ordering_key)
        if key is None:
            return 0
        if self._is_pipelined:
            self._dropped.add(ordering_key)
        followers, key.waiting = key.waiting, ()
        if not key.unsettled:
            del self._keys[ordering_key]
        self._forget(followers)
        self.queued -= len(followers)
        return len(followers)

    def drop_queue(self) -> None:
        """Forget all that is marked and not produced; what is in flight stays."""
        for ready in (self._ready, self._ready_of_others):
            self._drop(ready)
            ready.clear()
        self._dropped.clear()
        for ordering_key in list(self._keys):
            self.drop_followers(ordering_key)
        self._dropped.clear()
        self.queued = 0

    def recall(self) -> list[Record]:
        """
        Take back all that is not acknowledged: its producer is gone.

        Returns the records in the order in which those of a key have to be sent; they
        count as never queued.
        """
        under_way = [record for record, _ in self.unreported.values()]
        ready = [*self._ready, *self._ready_of_others]
        waiting = [record for key in self._keys.values() for record in key.waiting]
        self.drop_queue()
        self.unreported.clear()
        self.settle(under_way)
        self._proven.clear()
        return [*under_way, *ready, *waiting]

    def _is_apart(self, record: Record) -> bool:
        """Whether a record goes apart from others, since it may be refused."""
        if record.id in self.suspects:
            return True
        has_failed = record.attempts > 0 or record.topic in self.refused_topics
        return self._is_pipelined and has_failed

    def _may_go(self, record: Record, ordering_key: OrderingKey, key: _Key) -> bool:
        """Decide whether the next record of a key may go now, and whether apart."""
        is_apart = self._is_apart(record)
        if not key.unsettled:
            if is_apart:
                key.is_single = self._is_pipelined
                self.apart.add(record.id)
            return True
        return not is_apart and not key.is_single and ordering_key in self._proven

    def _release(self, ordering_key: OrderingKey, key: _Key) -> None:
        """Let the next records of a key go."""
        this_cluster, waiting = self._this_cluster, key.waiting
        if not waiting:
            return
        while waiting and self._may_go(waiting[0], ordering_key, key):
            record = waiting.popleft()
            key.unsettled += 1
            is_own = record.cluster_id == this_cluster
            (self._ready if is_own else self._ready_of_others).append(record)

    def _drop_ready(self) -> None:
        """Forget the ready records of the keys that were dropped."""
        if not (dropped := self._dropped):
            return
        for ready in (self._ready, self._ready_of_others):
            gone = [record for record in ready if record.ordering_key in dropped]
            if gone:
                kept = [
                    record for record in ready if record.ordering_key not in dropped
                ]
                self._drop(gone)
                self.queued -= len(gone)
                ready.clear()
                ready.extend(kept)
        dropped.clear()

    def _drop(self, records: Collection[Record]) -> None:
        """Forget records that were ready."""
        self._forget(records)
        for record in records:
            key = self._keys[record.ordering_key]
            key.unsettled -= 1
            if not key.unsettled and not key.waiting:
                del self._keys[record.ordering_key]

    def _forget(self, records: Collection[Record]) -> None:
        ids = [record.id for record in records]
        self._ids.difference_update(ids)
        if self.apart:
            self.apart.difference_update(ids)
        self.bytes -= size_of(records)
        if self.of_others:
            this_cluster = self._this_cluster
            self.of_others -= sum(
                record.cluster_id != this_cluster for record in records
            )
