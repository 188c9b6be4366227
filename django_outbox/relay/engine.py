"""
The relay's decisions: what is sent next, and what an outcome means.

The unit of work is a page: read in one snapshot, in the order of ids. The engine takes
out of it what may not go now, hands out the rest in batches, and turns what became of
them into settlements. It knows no clock, driver or thread; every kind of delivery uses
it. The steps B2 to B5 are those of the reference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from ..exceptions import RecordPoisoned
from ..message.pauses import Pauses
from ..message.record import Failure, KeyToRead, OrderingKey, Record, Sweep
from .batch import Accepted, Batch, Fault
from .blocked_key import BlockedKey, BlockedKeys
from .settings import RelaySettings
from .settlement import Settled, Settlement
from .takeovers import Takeovers
from .waiting_records import Waiting

READ_AHEAD: Final = 4
"""Pages that may wait while some keys are limited, most of them behind hot keys."""


class Engine:
    """
    What one leader has read and not settled; owned by one thread.

    A new leader id is taken (`begin`) only when nothing of the former is under way.
    """

    def __init__(self, settings: RelaySettings) -> None:
        self.leader_id: str | None = None
        """The id under which records are read and sent, or None: stand by."""
        self.run = 0
        """Counts the starts at the head of the table."""
        self.must_refresh = False
        """The reference's forceRemark: what was read under this leader id is not
        known, and only a new id finds everything again."""
        self.refresh_reason = ""
        self.purged = 0
        """Records purged since this process started."""
        self.failed = 0
        """Deliveries that failed since this process started."""
        self.blocked = BlockedKeys()
        """Keys that wait for a retry; their records stay in the table."""
        self.batches: deque[Batch] = deque()
        """Under way in the pipeline, in the order in which they were sent."""
        self.apart: list[Batch] = []
        """Under way apart from it."""
        self.takeovers = Takeovers(
            this_cluster=settings.this_cluster, quiet=settings.quiet
        )
        """What it relays of other clusters."""
        self.waiting = Waiting(settings)
        """Records that were read and not sent."""
        self._settings = settings
        self._retry = settings.retry
        self._marks_in_table = settings.marks_in_table
        self._is_strict = settings.max_in_flight_per_key == 1
        self._last_leader_id = ""
        self._under_way = 0
        self._pending: Settlement | None = None
        self._submitted: list[Settlement] = []
        """Settlements that the table does not hold yet."""
        self._stuck: set[int] = set()
        """Rows of records in the log that the table does not release yet; this process
        sends none of them again, under no leader id."""
        self._gone: set[int] = set()
        """Rows that have left the table since the last page was requested."""

    @property
    def in_flight(self) -> int:
        """Records that were sent and are not settled."""
        return self._under_way + sum(map(len, self._settlements()))

    @property
    def unsettled(self) -> int:
        """Of these, all but those in the log whose rows the table does not release."""
        rests = [s for s in self._submitted if s.is_rest]
        return self.in_flight - sum([len(rest.acknowledged) for rest in rests])

    @property
    def under_way(self) -> int:
        """Records that were sent and have no outcome."""
        return self._under_way

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be sent, settled or tried again."""
        return not (self.waiting or self.in_flight or self.blocked)

    @property
    def has_room(self) -> bool:
        """Whether a page should be read."""
        waiting, settings = self.waiting, self._settings
        if self.blocked.pauses.is_all or waiting.bytes > settings.page_bytes:
            return False
        pages = READ_AHEAD if waiting.is_limited else 1 + settings.blocks
        waits = waiting.of_this_cluster + len(self._stuck)
        return waits < pages * settings.page_rows

    # A run.

    def begin(self, leader_id: str) -> None:
        """Start at the head of the table; only what is not settled is kept."""
        assert not self._under_way, "a run begins only when nothing is under way"
        self.run += 1
        # A2: whatever was uncertain is read again.
        self.must_refresh = False
        self.refresh_reason = ""
        self.leader_id = self._last_leader_id = leader_id
        self._forget()

    def stand_down(self) -> None:
        """Send no more; what is under way still has to settle."""
        self.leader_id = None
        self._forget()

    def refresh(self, reason: str) -> None:
        """Ask for a new leader id once nothing is in flight (A9)."""
        if self.leader_id is not None and not self.must_refresh:
            self.must_refresh = True
            self.refresh_reason = reason
            self._forget()

    def _forget(self) -> None:
        under_way = [r for b in (*self.batches, *self.apart) for r in b.records]
        settled = [r for s in self._settlements() for r in _records_of(s)]
        self.waiting.forget(under_way, settled)
        self.blocked.clear()

    def _settlements(self) -> Iterable[Settlement]:
        yield from self._submitted
        if pending := self._pending:  # Another thread counts them too.
            yield pending

    # What was read.

    def begin_read(self) -> None:
        """Note what leaves the table from here on: the page may still show it."""
        self._gone.clear()

    def found(self, records: Sequence[Record]) -> None:
        """Take the rows of a page, in the order of their ids."""
        if self._stuck:
            records = [record for record in records if record.id not in self._stuck]
        known = self.waiting.known_among(records, self._gone)
        if known and self._marks_in_table:
            # A statement of a former leader id took effect late and took rows
            # from us: in which order they are marked now, nobody knows.
            self.refresh("rows that wait here were marked by another")
            return
        if known:
            records = [record for record in records if record.id not in known]
        if self.blocked or self.blocked.pauses:
            records = [record for record in records if not self.blocked.keeps(record)]
        self.waiting.add(records)

    def pause(self, pauses: Pauses) -> None:
        """Take what an operator has paused, as a page has it."""
        former, self.blocked.pauses = self.blocked.pauses, pauses
        if pauses != former:
            self._drop_blocked()
        if not pauses.includes(former):
            # Their records were passed over: begin at the head of the table.
            self.refresh("records that were paused may go on")

    def sweep(self) -> Sweep:
        """Tell what a repair scan passes over."""
        return self.blocked.sweep(self.waiting.known)

    # What is sent.

    def take(
        self, most: int, now: float, *, page_bytes: int | None = None
    ) -> Batch | None:
        """
        Return the next records to send together; None: nothing may go now.

        A4 throttle on all that is in flight, A5 the limits of their keys; A8 (produce)
        is the caller's.
        """
        room = int(min(most, self._settings.max_in_flight - self.in_flight))
        if room <= 0 or not self.waiting:
            return None
        batch = self.waiting.take(room, now, self._keys_under_way, page_bytes)
        if batch is not None:
            self._under_way += len(batch.records)
            (self.apart if batch.is_apart else self.batches).append(batch)
        return batch

    def _keys_under_way(self) -> set[OrderingKey]:
        return {r.ordering_key for batch in self.batches for r in batch.records}

    def cut(self, batch: Batch, accepted: Accepted) -> None:
        """Take back what a producer has not queued of the last batch taken."""
        count, error = accepted
        records, batch.records = batch.records, batch.records[:count]
        if not count:
            self.ended(batch)
        rest = records[count:] if error is None else records[count + 1 :]
        self.recall(rest)
        if error is not None:
            self.refused([Fault(records[count], error)])

    def ended(self, batch: Batch) -> None:
        """Forget a batch; the outcome of each of its records follows."""
        (self.apart if batch.is_apart else self.batches).remove(batch)

    def recall(self, records: Sequence[Record]) -> None:
        """Take back, in order, records of ended batches that are not in the log."""
        self._under_way -= len(records)
        self._put_back(records)

    def _put_back(self, records: Sequence[Record]) -> None:
        if self.leader_id is None or self.must_refresh:
            self.waiting.drop(records)
            return
        blocked = [record for record in records if self.blocked.keeps(record)]
        self.waiting.drop(blocked)
        if blocked:
            ids = {record.id for record in blocked}
            records = [record for record in records if record.id not in ids]
        self.waiting.put_back(records)

    # What became of it.

    def done(self, batch: Batch) -> None:
        """Note that all of a batch is in the log; it settles behind those before it."""
        batch.is_reported = True
        while self.batches and self.batches[0].is_reported:
            if self.batches[0].faults:
                return
            self.delivered(self.batches.popleft().records)

    def delivered(self, records: Sequence[Record]) -> None:
        """Note records that are in the log."""
        self.waiting.ended(records)
        if records:
            self._under_way -= len(records)
            self._settlement().acknowledged.extend(records)

    def refused(self, faults: Iterable[Fault]) -> None:
        """Note records of ended batches that cannot be delivered now."""
        for record, error in faults:
            self._under_way -= 1
            self.waiting.ended([record])
            key = record.ordering_key
            if key in self.blocked:
                # Behind a record that blocks its key, a fault says nothing more.
                self._put_back([record])
                continue
            self.failed += 1
            if isinstance(error, RecordPoisoned):
                self.waiting.suspects.add(record.id)
            failure = Failure(record, f"{error.code}: {error}")
            if self._settings.should_park(record, error):
                self.waiting.parking[record.id] = key
                self._settlement().poisoned.append(failure)
            else:
                self._settlement().failed.append(failure)
                self.blocked[key] = BlockedKey(record.id, record.attempts + 1)
        # B3: later records of these keys may not overtake them. Behind a record of
        # another cluster there may be own ones, with lower ids.
        self._drop_blocked()

    def in_log(self, records: Sequence[Record]) -> None:
        """Take rows that are in the log already: they only have to leave the table."""
        if not records:
            return
        self.waiting.know(records)
        self._settlement().acknowledged.extend(records)

    @property
    def unpurged(self) -> list[Record]:
        """Records in the log whose rows may still be in the table."""
        return [record for s in self._settlements() for record in s.acknowledged]

    def _settlement(self) -> Settlement:
        if self._pending is None:
            self._pending = Settlement(leader_id=self._last_leader_id)
        return self._pending

    # What the table holds of it.

    def settlement(self) -> Settlement | None:
        """Hand out what was decided since the last call."""
        pending, self._pending = self._pending, None
        if pending is not None:
            self._submitted.append(pending)
        return pending

    def settled(self, settled: Settled, *, now: float) -> Settlement | None:
        """
        Take the outcome of a settlement (B4, B5).

        Returns the rest that it left in the table, to be submitted again.
        """
        settlement = settled.settlement
        self._submitted = [s for s in self._submitted if s is not settlement]
        self._note_stuck(settled)
        parked = [record for record, _ in settled.poisoned]
        gone = [*settled.acknowledged, *parked]
        failed = [record for record, _ in settled.failed]
        self._gone.update([record.id for record in gone])
        self.waiting.parked(parked)
        self.waiting.drop(gone)
        self.waiting.drop(failed)
        for key in {record.ordering_key for record in failed}:
            if blocked := self.blocked.get(key):
                self.blocked.retry(blocked, now + self._retry.delay(blocked.attempts))
        self.purged += settled.purged
        if settlement.is_rest:
            self._let_follow(gone, now)
        if settled.rest is not None:
            # Before a refresh forgets what is settled.
            self._submitted.append(settled.rest)
        if self._marks_in_table:
            self._check_marks(settled)
        return self._keep(settled)

    def _note_stuck(self, settled: Settled) -> None:
        if self._stuck:
            self._stuck.difference_update([r.id for r in settled.acknowledged])
        if (rest := settled.rest) is not None:
            self._stuck.update([record.id for record in rest.acknowledged])

    def _block_behind(self, rest: Settlement) -> None:
        """Let later records of these keys wait in the table: memory is bounded."""
        rows = [record for record, _ in rest.poisoned]
        if self._is_strict:
            rows += rest.acknowledged
        for record in rows:
            self.blocked.setdefault(record.ordering_key, BlockedKey(record.id, 0))
        if rows:
            self._drop_blocked()

    def _let_follow(self, gone: Sequence[Record], now: float) -> None:
        """Retry the keys that waited for these rows to leave the table."""
        for record in gone:
            blocked = self.blocked.get(record.ordering_key)
            if blocked is not None and not blocked.attempts:
                self.blocked.retry(blocked, now)

    def _drop_blocked(self) -> None:
        followers = self.waiting.remove(self.blocked.keeps)
        self.waiting.drop(followers, were_sent=False)

    def _check_marks(self, settled: Settled) -> None:
        """Read all again where rows of ours were no longer marked by us."""
        # A purge that got no answer may have deleted the missing rows, or somebody
        # else has marked them: only a new leader id tells. Those of a rest are deleted
        # under any mark.
        missing = len(settled.acknowledged) - settled.purged
        if missing > 0 and not settled.settlement.is_rest:
            self.refresh(f"{missing} purged rows were no longer marked by us")
        # A row that somebody else has marked stays, and comes first again.
        missing = len(settled.poisoned) - settled.parked
        if missing > 0:
            self.refresh(f"{missing} parked rows were no longer marked by us")

    def _keep(self, settled: Settled) -> Settlement | None:
        """Return the rest; rows that cannot be parked now go to the next leader id."""
        rest = settled.rest
        if rest is None:
            return None
        if self.must_refresh or self.leader_id != settled.settlement.leader_id:
            unparked = [record for record, _ in rest.poisoned]
            self.waiting.parked(unparked)
            self.waiting.drop(unparked)
            self._submitted.remove(rest)
            rest = replace(rest, poisoned=[])
            self._submitted += [rest] if len(rest) else []
        self._block_behind(rest)
        return rest if len(rest) else None

    # Blocked keys.

    def due(self, now: float) -> list[KeyToRead]:
        """Return the keys whose rows are to be read again (B2)."""
        if now < self.blocked.retry_at:
            return []
        waiting = self.waiting
        under_way = self._keys_under_way() | waiting.limited
        return self.blocked.due(now, under_way.union(waiting.parking.values()))


def _records_of(settlement: Settlement) -> Iterable[Record]:
    yield from settlement.acknowledged
    for record, _ in (*settlement.poisoned, *settlement.failed):
        yield record
