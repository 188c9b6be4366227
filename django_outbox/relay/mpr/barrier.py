"""
MP/R's decisions, without clock, driver or thread.

`Dispatcher` feeds it marked records and delivery reports and asks what to
produce; `Settler` carries out its settlements. The steps A1–A9 and B1–B5 are
those of the reference; `relay/__init__` tells the protocol as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from ...exceptions import DeliveryFailed, ProducerBroken, RecordPoisoned
from ...message.record import Failure, KeyToRead, OrderingKey, Record, Sweep
from ...message.retry import RetryPolicy
from ..blocked_key import NEVER, BlockedKey
from ..poison import should_park
from ..settlement import Settled, Settlement
from ..stuck_rows import StuckRows
from .inflight import InFlight

ABANDONED = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})
"""Codes of records that we gave up ourselves: no fault of theirs."""

RECHECK: Final = 0.05
"""Seconds until a key is looked at again whose earlier records are still under way."""

READ_AHEAD: Final = 4
"""Pages of which records may wait this_cluster, most of them behind hot keys."""


class Relay:
    """
    The state of one leader's work, owned by one thread.

    All that is in flight was produced under one leader id: a new id is taken
    (`lead`) only when nothing of the former is left.

    Args:
        max_in_flight: W, records produced and not settled.
        page_bytes: while values of more than that are marked and not settled, there
            is no room.
        per_key: records of one key in flight at most; 0: any number, which needs marks
            in memory.
    """

    def __init__(
        self,
        *,
        max_in_flight: int,
        page_bytes: int,
        retry: RetryPolicy,
        marks_in_memory: bool = False,
        per_key: int = 1,
        this_cluster: int = 0,
    ) -> None:
        self.leader_id: str | None = None
        """The id under which records are marked, or None: stand by."""
        self.must_remark = False
        """The reference's forceRemark: the table may hold marks of ours that
        we do not know of, so only a new leader id finds everything again."""
        self.remark_reason = ""
        self.purged = 0
        """Records purged since this process started."""
        self.failed = 0
        """Deliveries that failed since this process started."""
        self.blocked: dict[OrderingKey, BlockedKey] = {}
        """Keys that wait for a retry; their records stay marked in the table."""
        self.retry_at = NEVER
        """Monotonic seconds at which the first of them is due."""
        self.is_producer_broken = False
        """Whether the next record needs a new producer; who makes one resets this."""
        self._max_in_flight = max_in_flight
        self._page_bytes = page_bytes
        self._marks_in_memory = marks_in_memory
        self._retry = retry
        self._is_pipelined = per_key != 1
        self._flying = InFlight(this_cluster=this_cluster, per_key=per_key)
        self._delivered: list[Record] = []
        """Acknowledged since they were last counted."""
        self._pending: Settlement | None = None
        self._stuck = StuckRows()
        self._flying_id = ""
        self._gone: set[int] = set()

    @property
    def in_flight(self) -> int:
        """Records produced and not settled."""
        return self._flying.count

    @property
    def unsettled(self) -> int:
        """Of these, all but the records that only wait to leave the table."""
        return self._flying.count - len(self._stuck)

    @property
    def unreported(self) -> int:
        """Of these, records of which the producer has not told yet."""
        return len(self._flying.unreported) - len(self._delivered)

    @property
    def delivered(self) -> int:
        """Records that were acknowledged since the last settlement was handed out."""
        return len(self._delivered)

    @property
    def apart(self) -> Collection[int]:
        """Ids of the records that were taken to be produced apart from others."""
        return self._flying.apart

    @property
    def queued(self) -> int:
        """Records marked and not produced."""
        return self._flying.queued

    @property
    def of_others(self) -> int:
        """Records of other clusters, marked or produced and not settled."""
        return self._flying.of_others

    def has_room(self, rows: int) -> bool:
        """
        Whether a page of so many rows should be marked.

        Records that wait behind a hot key do not keep others in the table, up
        to a bound.
        """
        flying = self._flying
        return (
            flying.ready < rows
            and flying.queued - flying.of_others < READ_AHEAD * rows
            and flying.bytes <= self._page_bytes
        )

    def lead(self, leader_id: str) -> None:
        """Start from an empty memory under a leader id never used before."""
        assert not self.unsettled, "an id is taken only when nothing is in flight"
        assert leader_id != self._flying_id, "an id is never led twice"
        # A2: whatever was uncertain is marked again under the new id.
        self.must_remark = False
        self.remark_reason = ""
        self.leader_id = self._flying_id = leader_id
        self._flying.suspects.clear()
        self._flying.refused_topics.clear()
        self._forget_queue()

    def stand_down(self) -> None:
        """Produce no more; what is in flight still has to settle."""
        self.leader_id = None
        self._forget_queue()

    def force_remark(self, reason: str) -> None:
        """Ask for a new leader id once nothing is in flight (A9)."""
        if self.leader_id is not None and not self.must_remark:
            self.must_remark = True
            self.remark_reason = reason
            self._forget_queue()

    def begin_mark(self) -> None:
        """Note what leaves the table from here on: the mark may still see it."""
        self._gone.clear()

    def marked(self, records: Sequence[Record]) -> None:
        """Take what a mark returned (A3), in id order."""
        records = self._stuck.without(records, self._flying_id)
        if self.blocked:
            # A blocked key's records stay marked and are found again, in order,
            # after the key's reset.
            records = [record for record in records if not self._waits(record)]
        ids = [record.id for record in records]
        if not self._gone.isdisjoint(ids) or self._flying.holds_any(ids):
            # A statement of a former leader id took effect late and took rows
            # from us: in which order they are marked now, nobody knows.
            self.force_remark("rows that wait here were marked by another")
            return
        self._flying.enqueue(records)

    def sweep(self) -> Sweep:
        """Tell what a sweep passes over."""
        return Sweep(self._flying.ids, tuple(self.blocked))

    def take(self, most: int, now: float = 0.0) -> list[Record]:
        """
        Return some of the next records to produce; none: nothing may go now.

        A4 throttle on all that is in flight, A5 the barriers of their keys, A6
        and A7 count them in; A8 (produce) is the caller's.
        """
        room = self._max_in_flight - self._flying.count
        return self._flying.take(min(most, room), now)

    def put_back(self, records: Sequence[Record]) -> None:
        """Put back, in their order, records that were taken and not produced."""
        self._flying.put_back(records)
        if self.leader_id is None or self.must_remark:
            self._flying.drop_queue()

    def reported(self, record: Record, error: DeliveryFailed | None) -> None:
        """Take what the producer tells of one record that it has sent, or has not."""
        if error is None:
            self._delivered.append(record)
            return
        is_broken = isinstance(error, ProducerBroken)
        self.is_producer_broken |= is_broken
        if is_broken or error.code in ABANDONED:
            self._abandoned(record, error)
        elif self._is_pipelined and record.id not in self._flying.apart:
            self._broken_off(record, error)
        else:
            self.refused(record, error)

    def refused(self, record: Record, error: DeliveryFailed) -> None:
        """Take that one record cannot be delivered now; no other is concerned."""
        self._flying.reported(record)
        self.failed += 1
        if isinstance(error, RecordPoisoned):
            self._flying.suspects.add(record.id)
        failure = Failure(record, f"{error.code}: {error}")
        if should_park(record, error, self._retry):
            self._settlement().poisoned.append(failure)
            return
        self._settlement().failed.append(failure)
        # B3: later records of this key may not overtake it. Behind a record of
        # another cluster there may be own ones, with lower ids.
        low = self._flying.lowest(record)
        self._flying.drop_followers(record.ordering_key)
        self.blocked[record.ordering_key] = BlockedKey(low, record.attempts + 1)

    def overdue(self, since: float) -> list[Record]:
        """Return what is under way since then, or longer (monotonic seconds)."""
        self._count_delivered()
        overdue: list[Record] = []
        for record, at in self._flying.unreported.values():
            if at > since:
                break
            if record.id not in self._flying.apart:
                overdue.append(record)
        return overdue

    def restart(self) -> None:
        """
        Queue again, in order, what the last producer has not acknowledged.

        Called after a producer was discarded. What waits for a retry, or is no longer
        ours to send, is forgotten instead: it is found again in the table.
        """
        self.is_producer_broken = False
        if not self._is_pipelined:
            return
        self._count_delivered()
        records = self._flying.recall()
        if self.leader_id is not None and not self.must_remark:
            self._flying.enqueue([r for r in records if not self._waits(r)])

    def _count_delivered(self) -> None:
        if delivered := self._delivered:
            self._delivered = []
            self._flying.acknowledged(delivered)
            self._settlement().acknowledged.extend(delivered)

    def _abandoned(self, record: Record, error: DeliveryFailed) -> None:
        """No fault of the record, and nobody knows whether it is in the log."""
        if not self._is_pipelined:
            self._flying.reported(record)
            self._flying.settle([record])
            self.force_remark(f"the producer gave up: {error.code}")

    def _broken_off(self, record: Record, error: DeliveryFailed) -> None:
        """
        Give up the producer that met a failure while more of the key was under way.

        It sends nothing behind a failure (`enable.gapless.guarantee`).
        """
        self.is_producer_broken = True
        if isinstance(error, RecordPoisoned):
            if not error.is_certain:
                # One record of the batch is at fault: each is sent apart.
                self._flying.suspects.add(record.id)
                return
            # Only a topic is refused for sure in a batch of several records.
            self._flying.refused_topics.add(record.topic)
        if record.ordering_key not in self.blocked:
            self.refused(record, error)

    def settlement(self) -> Settlement | None:
        """Hand out what was decided since the last call."""
        self._count_delivered()
        pending, self._pending = self._pending, None
        return pending

    def settled(self, settled: Settled, *, now: float) -> Settlement | None:
        """
        Lower the barriers of a settlement that the table holds (B4, B5).

        Returns what it has left in the table, to be submitted again.
        """
        self._stuck.settled(settled)
        rest = self._rest_of(settled)
        gone = [*settled.acknowledged, *[record for record, _ in settled.poisoned]]
        self._flying.settle(gone)
        ids = [record.id for record in gone]
        self._gone.update(ids)
        self._flying.suspects.difference_update(ids)
        for record, _ in settled.failed:
            self._flying.settle([record])
            if blocked := self.blocked.get(record.ordering_key):
                blocked.until = now + self._retry.delay(blocked.attempts)
                self.retry_at = min(self.retry_at, blocked.until)
        self.purged += settled.purged
        # With marks in memory, a row that was not there is another's work, and no
        # mark of ours is lost.
        if not self._marks_in_memory:
            missing = len(settled.acknowledged) - settled.purged
            if missing > 0:
                self.force_remark(f"{missing} purged rows were no longer marked by us")
            # A row that somebody else has marked stays, and comes first again.
            missing = len(settled.poisoned) - settled.parked
            if missing > 0:
                self.force_remark(f"{missing} parked rows were no longer marked by us")
        return rest

    def _rest_of(self, settled: Settled) -> Settlement | None:
        """Return the rest; rows that cannot be parked now go to the next leader id."""
        rest = settled.rest
        is_over = self.must_remark or self.leader_id != settled.settlement.leader_id
        if rest is not None and is_over:
            self._flying.settle([record for record, _ in rest.poisoned])
            rest = replace(rest, poisoned=[])
        return rest if rest is not None and len(rest) else None

    def remarked(self, rest: Settlement) -> Settlement:
        """Return a rest under the leader id that its rows have now."""
        return self._stuck.remarked(rest)

    def due(self, now: float) -> list[KeyToRead]:
        """Return the keys whose rows are to be reset (B2) and retried."""
        if now < self.retry_at:
            return []
        due: list[KeyToRead] = []
        for ordering_key, wait in self.blocked.items():
            if wait.until > now:
                continue
            if self._flying.has_unsettled(ordering_key):
                # Earlier records of the key are under way: they go first.
                wait.until = now + RECHECK
            else:
                due.append(KeyToRead(ordering_key, wait.low))
        if not due:
            self._plan_retry()
        return due

    def unblock(self, ordering_keys: Iterable[OrderingKey]) -> None:
        """Let these keys be marked again; their rows have been reset."""
        for ordering_key in ordering_keys:
            self.blocked.pop(ordering_key, None)
        self._plan_retry()

    def _plan_retry(self) -> None:
        waits = (wait.until for wait in self.blocked.values())
        self.retry_at = min(waits, default=NEVER)

    def _waits(self, record: Record) -> bool:
        """Whether its key is blocked; then it is to be found again."""
        wait = self.blocked.get((record.topic, record.key))
        if wait is None:
            return False
        wait.low = min(wait.low, record.id)
        return True

    def _settlement(self) -> Settlement:
        if self._pending is None:
            self._pending = Settlement(leader_id=self._flying_id)
        return self._pending

    def _forget_queue(self) -> None:
        self._flying.drop_queue()
        self.blocked.clear()
        self.retry_at = NEVER
