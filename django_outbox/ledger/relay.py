"""
The ledger relay's decisions, without clock, driver or thread.

`LedgerDispatcher` feeds it what was found and how transactions ended, and
asks what to send. `ledger/__init__` tells the protocol as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ..exceptions import RecordPoisoned
from ..records import Failure, Lane, Record, Settlement
from ..relay.poison import RetryPolicy
from .ports import Fault, Held, Look

NEVER: Final = float("inf")

FIRST_PAGE: Final = 500
"""Rows of a run's first page; full pages make the next ones larger."""

MAX_BYTES: Final = 16_000_000
"""Values of one transaction, or of one page, unless one value is larger."""


@dataclass(slots=True)
class Hold:
    """A lane whose rows stay in the table, unread, until they may follow."""

    low: int
    """The lowest id of its rows that is still to be read."""
    attempts: int
    """How often its first row has failed; 0 when only the rest has to follow."""
    until: float = NEVER
    """Boot-time seconds to read it again at; NEVER while something is under way."""


class LedgerRelay:
    """
    The state of one run, owned by one thread.

    Args:
        batch: records of one transaction at most.
        retry: when to try a failed record again, and when to park it.
    """

    def __init__(self, *, batch: int, retry: RetryPolicy) -> None:
        self.purged = 0
        """Records purged since this process started."""
        self.failed = 0
        """Deliveries that failed since this process started."""
        self.blocked: dict[Lane, Hold] = {}
        """Lanes that are held."""
        self._batch = batch
        self._retry = retry
        self._unpurged: list[Settlement] = []
        self.forget()

    def forget(self) -> None:
        """Begin a run: only what waits to be purged is kept."""
        self.blocked.clear()
        self._buffer: deque[Record] = deque()
        self._probes: list[Record] = []
        self._known = {r.id for s in self._unpurged for r in _settled_by(s)}
        self._gone: set[int] = set()
        self._size = self._batch
        self.page = min(FIRST_PAGE, self._batch)
        """Rows that the next page should have at most."""
        self._pending = Settlement(leader_id="")

    @property
    def in_flight(self) -> int:
        """Records that were sent, or failed, and are not settled in the table."""
        return sum(len(settlement) for settlement in self._unpurged)

    @property
    def has_room(self) -> bool:
        """Whether more rows should be read: one batch is sent, the next is read."""
        return len(self._buffer) < 2 * self._batch

    # What was found.

    def begin_look(self) -> None:
        """Note what leaves the table from here on: the look may still see it."""
        self._gone.clear()

    def found(self, look: Look, now: float) -> None:
        """Take the rows of a look, in the order in which they were read."""
        for lane, records in look.found.items():
            self._found_held(lane, records, now)
        known, blocked = self._known, self.blocked
        records = look.records
        if len(records) == look.limit:
            fitting = MAX_BYTES * len(records) // (_size_of(records) or 1)
            self.page = max(1, min(2 * look.limit, fitting, self._batch))
        if self._gone or not known.isdisjoint([record.id for record in records]):
            records = [record for record in records if not self._is_known(record)]
        if blocked:
            records = [record for record in records if not self._is_passed(record)]
        known.update(record.id for record in records)
        self._buffer.extend(records)

    def _found_held(self, lane: Lane, found: list[Record], now: float) -> None:
        hold = self.blocked[lane]
        if not found:
            del self.blocked[lane]
            return
        # Rows that are passed over from here on may have a lower id.
        hold.low, hold.until = found[-1].id + 1, now
        records = [record for record in found if not self._is_known(record)]
        self._known.update(record.id for record in records)
        if hold.attempts and records:
            # Its first row goes alone; the others follow once it has gone.
            self._probes += records
            hold.until = NEVER
        else:
            self._buffer.extend(records)

    def _is_known(self, record: Record) -> bool:
        """Whether this row has been read before, and was or will be settled."""
        return record.id in self._known or record.id in self._gone

    def _is_passed(self, record: Record) -> bool:
        """Leave a row of a held lane in the table."""
        hold = self.blocked.get(record.lane)
        if hold is None:
            return False
        hold.low = min(hold.low, record.id)
        return True

    def due(self, now: float) -> list[Held]:
        """Return the held lanes to read, and how much of each."""
        return [
            Held(lane, hold.low, 1 if hold.attempts else self._batch)
            for lane, hold in self.blocked.items()
            if hold.until <= now
        ]

    @property
    def retry_at(self) -> float:
        """Boot-time seconds at which the first held lane is due."""
        return min((hold.until for hold in self.blocked.values()), default=NEVER)

    @property
    def known(self) -> set[int]:
        """Ids that were read and are not settled."""
        return self._known

    # What to send, and what came of it.

    def next_batch(self) -> tuple[list[Record], bool]:
        """
        Return the records of the next transaction, and whether they are retries.

        The same ones are returned until `committed` or `aborted` is called.
        """
        source = self._probes or self._buffer
        batch: list[Record] = []
        room = MAX_BYTES
        for record in islice(source, self._size):
            room -= len(record.value or "")
            if room < 0 and batch:
                break
            batch.append(record)
        return batch, source is self._probes

    @property
    def unpurged(self) -> list[Record]:
        """Records of earlier transactions whose rows may still be there."""
        settlements = (*self._unpurged, self._pending)
        return [record for s in settlements for record in s.acknowledged]

    def committed(self, batch: Sequence[Record], leader_id: str, now: float) -> None:
        """Take note that the last batch is in the log, every record of it."""
        self._drop(len(batch))
        self._size = min(self._size * 2, self._batch)
        self._settlement(leader_id).acknowledged.extend(batch)
        if self.blocked:
            for record in batch:
                if (hold := self.blocked.get(record.lane)) and hold.attempts:
                    hold.attempts, hold.until = 0, now

    def aborted(
        self, batch: Sequence[Record], faults: Sequence[Fault], leader_id: str
    ) -> None:
        """Take note that nothing of the last batch is in the log, and why."""
        certain = [fault for fault in faults if _is_certain(fault)]
        if faults and not certain:
            # Some neighbour's fault: half of the batch tells more.
            self._size = max(1, len(batch) // 2)
            return
        self._size = min(self._size * 2, self._batch)
        held: set[Lane] = set()
        for fault in certain:
            lane = fault.record.lane
            # Behind a record that holds its lane, a fault says nothing more.
            if lane not in held and not self._is_parked(fault, leader_id):
                held.add(lane)
                self._hold(fault, leader_id)

    def settlement(self) -> Settlement | None:
        """Hand out what was decided since the last call."""
        if not len(self._pending):
            return None
        pending, self._pending = self._pending, Settlement(leader_id="")
        self._unpurged.append(pending)
        return pending

    def inherit(self, records: Iterable[Record], leader_id: str) -> None:
        """Take what the ledger lists: it is in the log, and perhaps in the table."""
        self._settlement(leader_id).acknowledged.extend(records)

    def settled(self, settlement: Settlement, now: float) -> None:
        """Take note that the table holds this settlement."""
        self._unpurged.remove(settlement)
        ids = [record.id for record in _settled_by(settlement)]
        self._known.difference_update(ids)
        # A row that failed stays in the table and has to be read again.
        self._gone.update(ids)
        self._gone.difference_update(f.record.id for f in settlement.failed)
        self.purged += settlement.purged or 0
        for record, _ in settlement.failed:
            if hold := self.blocked.get(record.lane):
                hold.until = now + self._retry.delay(hold.attempts)

    def _settlement(self, leader_id: str) -> Settlement:
        self._pending.leader_id = leader_id
        return self._pending

    def _drop(self, count: int) -> None:
        """Take the last batch out of where it came from."""
        if self._probes:
            del self._probes[:count]
            return
        for _ in range(count):
            self._buffer.popleft()

    def _is_parked(self, fault: Fault, leader_id: str) -> bool:
        """Set the record aside, if the policy says so; its lane flows on."""
        record, error = fault
        self.failed += 1
        if not self._retry.should_park(record, error):
            return False
        self._remove([record])
        self._settlement(leader_id).poisoned.append(_failure(fault))
        if hold := self.blocked.get(record.lane):
            hold.attempts, hold.until = 0, 0.0
        return True

    def _hold(self, fault: Fault, leader_id: str) -> None:
        """Let no record of this lane overtake this one."""
        record = fault.record
        self._settlement(leader_id).failed.append(_failure(fault))
        hold = self.blocked.get(record.lane)
        low = min(record.id, hold.low) if hold else record.id
        self.blocked[record.lane] = Hold(low, record.attempts + 1)
        followers = [r for r in self._buffer if r.lane == record.lane]
        self._remove([record, *followers])
        self._known.difference_update(r.id for r in followers if r is not record)

    def _remove(self, records: Sequence[Record]) -> None:
        ids = {record.id for record in records}
        self._probes = [r for r in self._probes if r.id not in ids]
        self._buffer = deque(r for r in self._buffer if r.id not in ids)


def _is_certain(fault: Fault) -> bool:
    """Whether this record is at fault, and not a neighbour in its batch."""
    return not isinstance(fault.error, RecordPoisoned) or fault.error.is_certain


def _failure(fault: Fault) -> Failure:
    return Failure(fault.record, f"{fault.error.code}: {fault.error}")


def _size_of(records: Sequence[Record]) -> int:
    return sum(len(record.value or "") for record in records)


def _settled_by(settlement: Settlement) -> Iterable[Record]:
    yield from settlement.acknowledged
    for record, _ in settlement.poisoned:
        yield record
    for record, _ in settlement.failed:
        yield record
