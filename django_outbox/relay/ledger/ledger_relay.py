"""
The ledger relay's decisions, without clock, driver or thread.

`LedgerDispatcher` feeds it what was found and how transactions ended, and
asks what to send. `ledger/__init__` tells the protocol as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from ...exceptions import RecordPoisoned
from ...message.record import (
    Failure,
    KeyToRead,
    OrderingKey,
    Record,
    Sweep,
    size_of,
)
from ...message.retry import RetryPolicy
from ..blocked_key import BlockedKey
from ..poison import should_park
from ..settlement import Settled, Settlement
from .blocked_keys import BlockedKeys
from .page_request import Page
from .ports import Fault


class LedgerRelay:
    """
    The state of one run, owned by one thread.

    Args:
        batch: records of one transaction at most.
        page_bytes: values of one transaction, unless one is larger; while more than
            that is read and not settled, there is no room.
        retry: when to try a failed record again, and when to park it.
    """

    def __init__(self, *, batch: int, page_bytes: int, retry: RetryPolicy) -> None:
        self.purged = 0
        """Records purged since this process started."""
        self.failed = 0
        """Deliveries that failed since this process started."""
        self._batch = batch
        self._page_bytes = page_bytes
        self._retry = retry
        self._unpurged: list[Settlement] = []
        self._seen: set[int] = set()
        self.forget()

    def forget(self) -> None:
        """Begin a run: only what waits to be purged is kept."""
        self.blocked_keys = BlockedKeys()
        """Keys whose rows stay in the table for now."""
        self._buffer: deque[Record] = deque()
        self._probes: list[Record] = []
        unpurged = [r for s in self._unpurged for r in _records_of(s)]
        self._known = {record.id for record in unpurged}
        self._bytes = size_of(unpurged)
        self._seen &= self._known
        self._gone: set[int] = set()
        self._size = self._batch
        self._pending = Settlement(leader_id="")

    @property
    def in_flight(self) -> int:
        """Records that were sent, or failed, and are not settled in the table."""
        return sum(len(settlement) for settlement in self._unpurged)

    @property
    def blocked(self) -> dict[OrderingKey, BlockedKey]:
        """Keys that wait for a retry."""
        return self.blocked_keys.by_key

    @property
    def has_room(self) -> bool:
        """Whether more rows should be read: one batch is sent, the next is read."""
        rows = len(self._buffer) + len(self._seen)
        # Each ledger lists the rows that do not leave the table.
        rows += sum([len(s) for s in self._unpurged if s.is_rest])
        return rows < 2 * self._batch and self._bytes <= self._page_bytes

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be sent, settled or tried again."""
        at_work = self.has_work or self._unpurged or len(self._pending)
        return not at_work and not self.blocked_keys.by_key

    # What was found.

    def begin_read(self) -> None:
        """Note what leaves the table from here on: the page may still show it."""
        self._gone.clear()

    def found(self, page: Page, now: float) -> None:
        """Take the rows of a page, in the order in which they were read."""
        probes, followers = self.blocked_keys.found(page, now, self._is_known)
        self._know([*probes, *followers])
        self._probes += probes
        self._buffer.extend(followers)
        records = page.records
        known, ids = self._known, [record.id for record in records]
        if not (known.isdisjoint(ids) and self._gone.isdisjoint(ids)):
            records = [record for record in records if not self._is_known(record)]
        if self.blocked_keys.by_key:
            passes = self.blocked_keys.passes
            records = [record for record in records if not passes(record)]
        self._know(records)
        self._buffer.extend(records)

    def _know(self, records: Sequence[Record]) -> None:
        self._known.update([record.id for record in records])
        self._bytes += size_of(records)

    def _is_known(self, record: Record) -> bool:
        """Whether this row has been read before, and was or will be settled."""
        return record.id in self._known or record.id in self._gone

    def due(self, now: float) -> list[KeyToRead]:
        """Return the blocked keys to read; the next page answers for them."""
        return self.blocked_keys.due(now, has_room=self.has_room)

    def sweep(self) -> Sweep:
        """Tell what a sweep passes over."""
        return Sweep(frozenset(self._known), tuple(self.blocked_keys.by_key))

    # What to send, and what came of it.

    @property
    def has_work(self) -> bool:
        """Whether there is something to send."""
        return bool(self._probes or self._buffer)

    def next_batch(self) -> tuple[list[Record], bool]:
        """
        Return the records of the next transaction, and whether they are retries.

        The same ones are returned until `committed` or `aborted` is called.
        """
        source = self._probes or self._buffer
        if self._bytes <= self._page_bytes:
            # All that there is fits, and need not be measured again.
            return list(islice(source, self._size)), source is self._probes
        batch: list[Record] = []
        room = self._page_bytes
        for record in islice(source, self._size):
            room -= size_of([record])
            if room < 0 and batch:
                break
            batch.append(record)
        return batch, source is self._probes

    @property
    def unpurged(self) -> list[Record]:
        """Records of earlier transactions whose rows may still be there."""
        settlements = (*self._unpurged, self._pending)
        records = [record for s in settlements for record in s.acknowledged]
        if not self._seen:
            return records
        # An earlier ledger speaks for these, and so do the ranges of this one.
        return [record for record in records if record.id not in self._seen]

    def committed(self, batch: Sequence[Record], leader_id: str, now: float) -> None:
        """Take note that the last batch is in the log, every record of it."""
        self._drop(len(batch))
        self._size = min(self._size * 2, self._batch)
        self._settlement(leader_id).acknowledged.extend(batch)
        if self.blocked_keys.by_key:
            self.blocked_keys.gone(batch, now)

    def aborted(
        self, batch: Sequence[Record], faults: Sequence[Fault], leader_id: str
    ) -> None:
        """Take note that nothing of the last batch is in the log, and why."""
        certain = [fault for fault in faults if _is_certain(fault)]
        if not certain:
            # Some neighbour's fault: half of the batch tells more.
            if faults:
                self.halve(batch)
            return
        self._size = min(self._size * 2, self._batch)
        parked: set[int] = set()
        keys_to_read: dict[OrderingKey, int] = {}
        for fault in certain:
            record = fault.record
            # Behind a record that holds its key, a fault says nothing more.
            if record.ordering_key in keys_to_read:
                continue
            self.failed += 1
            failure = Failure(record, f"{fault.error.code}: {fault.error}")
            if should_park(record, fault.error, self._retry):
                parked.add(record.id)
                self._settlement(leader_id).poisoned.append(failure)
                self.blocked_keys.gone([record], 0.0)
            else:
                keys_to_read[record.ordering_key] = record.id
                self._settlement(leader_id).failed.append(failure)
                self.blocked_keys.failed(record)
        self._set_aside(parked, keys_to_read)

    def halve(self, batch: Sequence[Record]) -> None:
        """Take fewer records than this batch has for the next one."""
        self._size = max(1, len(batch) // 2)

    def settlement(self) -> Settlement | None:
        """Hand out what was decided since the last call."""
        if not len(self._pending):
            return None
        pending, self._pending = self._pending, Settlement(leader_id="")
        self._unpurged.append(pending)
        return pending

    def inherit(self, records: Iterable[Record], leader_id: str) -> None:
        """Take what the ledger lists: it is in the log, and perhaps in the table."""
        waiting = {r.message_id for s in self._unpurged for r in s.acknowledged}
        fresh = [record for record in records if record.message_id not in waiting]
        self._settlement(leader_id).acknowledged.extend(fresh)

    def seen(self, records: Iterable[Record], leader_id: str) -> None:
        """Take rows that were found, and are in the log already: to be purged."""
        fresh = [record for record in records if not self._is_known(record)]
        self._know(fresh)
        self._seen.update(record.id for record in fresh)
        self._settlement(leader_id).acknowledged.extend(fresh)

    def settled(self, settled: Settled, now: float) -> None:
        """Take note that the table holds a settlement, but for its rest."""
        settlement, rest = settled.settlement, settled.rest
        self._unpurged = [s for s in self._unpurged if s is not settlement]
        records = list(_records_of(settled))
        ids = [record.id for record in records]
        self._bytes -= size_of(records)
        self._known.difference_update(ids)
        self._seen.difference_update(ids)
        # A row that failed stays in the table and has to be read again.
        self._gone.update(ids)
        self._gone.difference_update(f.record.id for f in settled.failed)
        if rest is not None:
            # These rows are found again until they leave the table.
            self._unpurged.append(rest)
            left = _records_of(rest)
            self._know([record for record in left if record.id not in self._known])
        self.purged += settled.purged
        for record, _ in settled.failed:
            if blocked := self.blocked_keys.by_key.get(record.ordering_key):
                blocked.until = now + self._retry.delay(blocked.attempts)

    def _settlement(self, leader_id: str) -> Settlement:
        if self._pending.leader_id != leader_id:
            self._pending = replace(self._pending, leader_id=leader_id)
        return self._pending

    def _drop(self, count: int) -> None:
        """Take the last batch out of where it came from."""
        if self._probes:
            del self._probes[:count]
            return
        for _ in range(count):
            self._buffer.popleft()

    def _set_aside(
        self, parked: set[int], keys_to_read: Mapping[OrderingKey, int]
    ) -> None:
        """Take parked records, and all of held keys, out of what is to be sent."""

        def stays(record: Record) -> bool:
            if record.id in parked:
                return False
            if (failed := keys_to_read.get(record.ordering_key)) is None:
                return True
            self.blocked_keys.passes(record)
            if record.id != failed:
                # It will be read again.
                self._known.discard(record.id)
                self._bytes -= size_of([record])
            return False

        self._probes = [record for record in self._probes if stays(record)]
        self._buffer = deque(record for record in self._buffer if stays(record))


def _is_certain(fault: Fault) -> bool:
    """Whether this record is at fault, and not a neighbour in its batch."""
    return not isinstance(fault.error, RecordPoisoned) or fault.error.is_certain


def _records_of(settled: Settlement | Settled) -> Iterable[Record]:
    yield from settled.acknowledged
    for record, _ in settled.poisoned:
        yield record
    for record, _ in settled.failed:
        yield record
