"""
The records that were read and not sent, and which of them may go.

In the default delivery any number of records of a key may be under way, and a batch is
simply the head of the queue. Some keys are *limited* to one record at a time:

- all, with `max_in_flight_per_key` = 1, until the record has left the table;
- those of a partition that has not acknowledged a record of this producer with an
  offset: a partition that is still coming up can acknowledge a record and lose it
  (hazard H31), and a later record of its key must not be in the log by then;
- those with a record that goes *apart* from all others, since it may be refused.

Nothing goes of a key with a record that is to be parked.

Of the records that may go, those that were written in this cluster go first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final

from ..message.record import OrderingKey, Record, size_of
from .batch import Batch
from .settings import RelaySettings

MAX_PROVEN: Final = 10_000
"""Keys whose partition is known to work; beyond that, all of them are proven again."""

_ATTEMPTS: Final = attrgetter("attempts")


class Waiting:
    """A queue of records in the order in which they may go, and all that are known."""

    def __init__(self, settings: RelaySettings) -> None:
        self.known: set[int] = set()
        """Ids of all that was read and is not settled."""
        self.bytes = 0
        """Size of these records; of a page that is settled in part, an estimate."""
        self.limited: set[OrderingKey] = set()
        """Keys of which no further record may go now."""
        self.suspects: set[int] = set()
        """Ids to be sent apart: they, or a neighbour in their batch, were refused."""
        self.refused_topics: set[str] = set()
        """Topics that took none of the last records: theirs are sent apart, too."""
        self.proven_topics: set[str] = set()
        """Topics of which each partition has acknowledged a record."""
        self.may_go_apart = True
        """Whether some may go apart now; the others go beside them."""
        self.parking: dict[int, OrderingKey] = {}
        """Keys of records that are to be parked, by id. If one is not parked after all,
        it goes before later ones of its key."""
        self._needs_proof = settings.needs_proof
        self._this_cluster = settings.this_cluster
        self._has_others = settings.clusters > 1
        self._is_strict = settings.max_in_flight_per_key == 1
        self._own: deque[Record] = deque()
        self._others: deque[Record] = deque()
        self._proven_keys: set[OrderingKey] = set()
        self._has_retries = False
        self._sizes: deque[list[int]] = deque()
        """Records and bytes of each page, as far as it is not settled."""
        self._may_go = True
        """Whether something has changed since nothing could go."""

    def __bool__(self) -> bool:
        return bool(self._own or self._others)

    @property
    def may_go(self) -> bool:
        """Whether one of them may go, as far as is known."""
        return self._may_go and bool(self)

    @property
    def of_this_cluster(self) -> int:
        """Records of this cluster that wait."""
        return len(self._own)

    @property
    def of_others(self) -> int:
        """Records of other clusters that wait."""
        return len(self._others)

    @property
    def next_topic(self) -> str:
        """The topic of the next record; the queue must not be empty."""
        return (self._own or self._others)[0].topic

    @property
    def is_limited(self) -> bool:
        """Whether some records wait for others of their key."""
        return self._is_strict or bool(self.limited or self.parking)

    # What comes and goes.

    def known_among(self, records: Sequence[Record], gone: set[int]) -> set[int]:
        """Return the ids of those that are known already, or among `gone`."""
        ids = [record[0] for record in records]
        if self.known.isdisjoint(ids) and gone.isdisjoint(ids):
            return set()
        return self.known.intersection(ids) | gone.intersection(ids)

    def add(self, records: Sequence[Record]) -> None:
        """Queue the records of a page."""
        if not records:
            return
        self.know(records)
        self._has_retries |= any(map(_ATTEMPTS, records))
        if self._has_others:
            this = self._this_cluster
            self._own.extend([r for r in records if r.cluster_id == this])
            self._others.extend([r for r in records if r.cluster_id != this])
        else:
            self._own.extend(records)
        self._may_go = True

    def know(self, records: Sequence[Record]) -> None:
        """Note rows as read and not settled, with their size."""
        self.known.update([record[0] for record in records])
        size = size_of(records)
        self.bytes += size
        self._sizes.append([len(records), size])

    def put_back(self, records: Sequence[Record]) -> None:
        """Queue records again that were taken, before all others."""
        this = self._this_cluster
        self._has_retries |= any(map(_ATTEMPTS, records))
        for record in reversed(records):
            is_own = not self._has_others or record.cluster_id == this
            (self._own if is_own else self._others).appendleft(record)
        if self.limited:
            self.limited.difference_update([r.ordering_key for r in records])
        self._may_go = True

    def drop(self, records: Collection[Record], *, were_sent: bool = True) -> None:
        """Forget records that are settled, or stay in the table."""
        if not records:
            return
        ids = [record[0] for record in records]
        self.known.difference_update(ids)
        if self.suspects:
            self.suspects.difference_update(ids)
        if self._is_strict and were_sent:
            self.limited.difference_update([(r[1], r[2]) for r in records])
        self._forget_sizes(len(records))
        self._may_go = True

    def remove(self, is_wanted: Callable[[Record], bool]) -> list[Record]:
        """Take all such records out of the queue, and return them."""
        removed: list[Record] = []
        for queue in (self._own, self._others):
            wanted = [record for record in queue if is_wanted(record)]
            _take_out(wanted, queue)
            removed += wanted
        return removed

    def forget(
        self, under_way: Sequence[Record], settling: Sequence[Record] = ()
    ) -> None:
        """Drop the whole queue; what is sent and not settled stays known."""
        but = [*under_way, *settling]
        self._own.clear()
        self._others.clear()
        self.known = {record.id for record in but}
        self.suspects.clear()
        self.refused_topics.clear()
        self._has_retries = False
        # A limit lasts to the acknowledgement or, with one for every key, to the purge.
        limiting = but if self._is_strict else under_way
        self.limited.intersection_update([r.ordering_key for r in limiting])
        self.parking = {n: key for n, key in self.parking.items() if n in self.known}
        self.bytes = size_of(but)
        self._sizes = deque([[len(but), self.bytes]] if but else ())
        self._may_go = True

    def _forget_sizes(self, count: int) -> None:
        sizes = self._sizes
        while count and sizes:
            page = sizes[0]
            part = min(count, page[0])
            size = page[1] * part // page[0]
            page[0] -= part
            page[1] -= size
            self.bytes -= size
            count -= part
            if not page[0]:
                sizes.popleft()

    # Keys are limited no longer.

    def prove(self, keys: Collection[OrderingKey]) -> None:
        """Note that the partitions of these keys have acknowledged a record each."""
        if len(self._proven_keys) >= MAX_PROVEN:
            self._proven_keys.clear()
        self._proven_keys.update(keys)
        if not self._is_strict:
            self.limited.difference_update(keys)
        self._may_go = True

    def disprove(self) -> None:
        """Forget all proofs: they are those of a producer that is gone."""
        self.proven_topics = set()
        self._proven_keys.clear()

    def parked(self, records: Iterable[Record]) -> None:
        """Note that records were parked, or will not be."""
        for record in records:
            self.parking.pop(record.id, None)
        self._may_go = True

    def ended(self, records: Iterable[Record]) -> None:
        """Note the outcome of records whose keys were limited until then."""
        if self.limited and not self._is_strict:
            self.limited.difference_update([r.ordering_key for r in records])
        self._may_go = True

    # What may go.

    def take(
        self,
        most: int,
        now: float,
        under_way: Callable[[], set[OrderingKey]],
        page_bytes: int | None = None,
    ) -> Batch | None:
        """
        Take the next records out of the queue.

        Args:
            most: how many, at most.
            now: monotonic seconds.
            under_way: returns the keys with a record in the pipeline.
            page_bytes: values of the batch, but for its last record.
        """
        if not self._may_go:
            return None
        if page_bytes is not None and self.bytes > page_bytes:
            most = self._fitting(most, page_bytes)
        for queue in (self._own, self._others):
            batch = self._next(queue, most, now, under_way)
            if batch is not None:
                return batch
        self._may_go = False
        return None

    def _next(
        self,
        queue: deque[Record],
        most: int,
        now: float,
        under_way: Callable[[], set[OrderingKey]],
    ) -> Batch | None:
        if not queue:
            return None
        may_be_refused = self._has_retries or self.suspects or self.refused_topics
        if may_be_refused:
            chosen: list[Record] = []
            if self.may_go_apart:
                chosen = self._choose_apart(queue, most, under_way())
            if chosen:
                return Batch(records=chosen, taken_at=now, is_apart=True)
        elif not self.is_limited:
            records = [queue.popleft() for _ in range(min(most, len(queue)))]
            if self._are_proven(records):
                return Batch(records=records, taken_at=now)
            queue.extendleft(reversed(records))
        if not (chosen := self._choose(queue, most)):
            return None
        proves_keys = self._needs_proof and not self._is_strict
        return Batch(records=chosen, taken_at=now, proves_keys=proves_keys)

    def _are_proven(self, records: Sequence[Record]) -> bool:
        if not self._needs_proof or {r[1] for r in records} <= self.proven_topics:
            return True
        return {(r[1], r[2]) for r in records} <= self._proven_keys

    def _choose_apart(
        self, queue: deque[Record], most: int, under_way: set[OrderingKey]
    ) -> list[Record]:
        """Take out records that go apart, and are the first of their keys."""
        chosen: list[Record] = []
        passed = self.limited | under_way | set(self.parking.values())
        for record in queue:
            key = record.ordering_key
            if len(chosen) < most and key not in passed and self._goes_apart(record):
                chosen.append(record)
            passed.add(key)
        if chosen:
            _take_out(chosen, queue)
            self.limited.update([record.ordering_key for record in chosen])
        self._has_retries = any(map(_ATTEMPTS, chain(self._own, self._others)))
        return chosen

    def _choose(self, queue: deque[Record], most: int) -> list[Record]:
        """Take out records that may go in the pipeline, in the order of each key."""
        chosen: list[Record] = []
        stays: list[Record] = []
        passed = set(self.parking.values())
        limited = self.limited
        while queue and len(chosen) < most:
            record = queue.popleft()
            key = (record[1], record[2])
            if key in limited or key in passed:
                stays.append(record)
            elif self._goes_apart(record):
                passed.add(key)
                stays.append(record)
            else:
                chosen.append(record)
                if self._is_single(key):
                    limited.add(key)
        queue.extendleft(reversed(stays))
        return chosen

    def _goes_apart(self, record: Record) -> bool:
        return (
            record.attempts > 0
            or record.id in self.suspects
            or record.topic in self.refused_topics
        )

    def _is_single(self, key: OrderingKey) -> bool:
        if self._is_strict:
            return True
        is_proven = key[0] in self.proven_topics or key in self._proven_keys
        return self._needs_proof and not is_proven

    def _fitting(self, most: int, page_bytes: int) -> int:
        """Return how many of the next records fit in this many bytes, at least one."""
        queue, room = self._own or self._others, page_bytes
        for count, record in enumerate(queue):
            if count == most:
                break
            room -= size_of([record])
            if room < 0:
                return max(1, count)
        return most


def _take_out(records: Sequence[Record], queue: deque[Record]) -> None:
    if records:
        ids = {record.id for record in records}
        kept = [record for record in queue if record.id not in ids]
        queue.clear()
        queue.extend(kept)
