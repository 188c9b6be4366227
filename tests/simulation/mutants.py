"""
Deliberately broken variants, to prove that the simulator finds such bugs.

Each is one wrong method, a mistake that an outbox can make; most were made by
one. Those of this page need only marks in the table; other pages have the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final

from django_outbox.election.neli import Neli
from django_outbox.election.ports import Heartbeat
from django_outbox.election.term import LeaderTerm
from django_outbox.message.record import OrderingKey, Record
from django_outbox.relay.batch import Batch, Fault
from django_outbox.relay.blocked_key import BlockedKeys
from django_outbox.relay.engine import Engine
from django_outbox.relay.lease import Lease, Trust
from django_outbox.relay.pipeline import Pipeline
from django_outbox.relay.ports import Term
from django_outbox.relay.settlement import Settled, Settlement
from django_outbox.relay.settler import Attempt, Settler, Write
from django_outbox.relay.waiting_records import Waiting
from django_outbox.relay.work_queue import WorkQueue

from .mutant import Mutant, named
from .table import Row, Table

_heard = Neli.heard
_confirmed = Neli.confirmed
_begin_drain = WorkQueue.begin_drain
_end_each = Pipeline._end_each
_found = Engine.found
_refused = Engine.refused
_settled = Engine.settled
_advance = Settler.advance
_outcome = Attempt.settled


# The election.


def lease_from_receipt(self: Neli, offset: int) -> None:
    """Let the lease run from when the proof arrived, as goneli does."""
    if offset in self._claims:
        self._claims[offset] = self._clock()
    _confirmed(self, offset)


def proof_without_the_group(self: Neli, heartbeat: Heartbeat, offset: int) -> None:
    """Take a heartbeat that was read back for a proof, as goneli does."""
    _heard(self, heartbeat, offset)
    _confirmed(self, offset)


def lease_without_end(self: LeaderTerm, now: float) -> float:
    """Never fence."""
    return inf


def same_id_after_a_refresh(self: LeaderTerm) -> LeaderTerm:
    """Take no new leader id where one is needed."""
    return self


# The table.


def writes_without_fence(self: Table, leader_id: str, ids: Sequence[int]) -> list[Row]:
    """Purge, reset, fail and park by id only, as goharvest does."""
    return [self.rows[id] for id in ids if id in self.rows]


def mark_by_bare_cursor(self: Table, leader_id: str, limit: int) -> list[Record]:
    """Mark what lies behind the last mark, and so lose late commits."""
    rows = self.rows.values()
    last = max((r.record.id for r in rows if r.leader_id == leader_id), default=0)
    page = sorted(id for id in self.rows if id > last)[:limit]
    for id in page:
        self.rows[id].leader_id = leader_id
    return [self.rows[id].record for id in page]


def keys_not_reset(
    self: Table, leader_id: str, ordering_keys: Sequence[OrderingKey]
) -> int:
    """Leave the marks of a failed key in the table."""
    return 0


# The relay.


def barrier_down_at_the_ack(self: Waiting, records: Iterable[Record]) -> None:
    """Let the next record of a key go before the last one is purged."""
    self.limited.difference_update([record.ordering_key for record in records])
    self._may_go = True


def failure_taken_for_success(
    self: Pipeline, batch: Batch, faults: Sequence[Fault]
) -> None:
    """Purge whatever was reported."""
    _end_each(self, batch, ())


def no_force_remark(self: Engine, reason: str) -> None:
    """Go on although the table may hold marks that nobody knows of."""


def blocked_keys_are_produced(self: Engine, records: Sequence[Record]) -> None:
    """Let later records of a failed key overtake it."""
    blocked, self.blocked = self.blocked, BlockedKeys()
    _found(self, records)
    self.blocked = BlockedKeys() if self.must_refresh else blocked


def followers_stay(self: Waiting, is_wanted: Callable[[Record], bool]) -> list[Record]:
    """Keep what waits behind a failed record."""
    return []


def followers_overtake_what_is_parked(self: Engine, faults: Iterable[Fault]) -> None:
    """Take a record that is to be parked for parked, although that may fail."""
    faults = list(faults)
    _refused(self, faults)
    keys = [fault.record.ordering_key for fault in faults]
    self.waiting.limited.difference_update(keys)
    self.waiting.parking.clear()


def led_again_after_a_stand_down(self: Lease, term: Term, now: float) -> Term | None:
    """Go on under an id whose lease is extended just after its end."""
    return term


def no_drain(self: WorkQueue, term: Term) -> None:
    """Hand over without waiting for what is in flight, as goharvest does."""
    _begin_drain(self, term)
    self._drained.set()


def producer_outlives_its_term(self: Pipeline, *, is_proven: bool) -> None:
    """Let records reach the log that were queued before the lease ended."""


def producer_is_never_discarded(
    self: Pipeline, is_late: Callable[[Batch], bool] = bool
) -> None:
    """Keep a producer, whatever befell it."""


def settled_without_the_table(self: Settler, attempt: Attempt) -> None:
    """Give a settlement up when the table does not answer."""
    _advance(self, attempt)
    attempt.purged = len(attempt.settlement.acknowledged)
    attempt.unpurged.clear()


def acts_without_a_look(self: Trust, leader_id: str) -> bool:
    """Trust the term as it was when the round began."""
    return True


def rows_taken_twice(
    self: Waiting, records: Sequence[Record], gone: set[int]
) -> set[int]:
    """Queue rows without asking whether they wait here already."""
    return set()


def purged_rows_return(
    self: Engine, settled: Settled, *, now: float
) -> Settlement | None:
    """Forget what was purged while a page was under way."""
    rest = _settled(self, settled, now=now)
    self._gone.clear()
    return rest


def unanswered_purge_is_trusted(self: Settler, attempt: Attempt) -> None:
    """Take rows that a repeated purge misses for the first try's work."""
    asked, is_repeated = attempt.settlement.acknowledged, hasattr(attempt, "tried")
    attempt.tried = True  # type: ignore[attr-defined]
    purged = self._outbox.purge(attempt.settlement.leader_id, asked) if asked else 0
    attempt.purged = len(asked) if is_repeated else purged
    attempt.unpurged.clear()


def unparked_rows_are_passed(self: Attempt) -> Settled:
    """Take every row that was to be parked for parked."""
    self.parked = len(self.parked_failures)
    return _outcome(self)


def locked_rows_delay_their_settlement(
    self: Settler, rows: list[Any], stuck: list[Any]
) -> int:
    """Wait with all rows of a settlement until the last one is not locked."""
    return 0


def refused_rows_count_as_an_outage(
    self: Settler,
    write: Write,
    leader_id: str,
    rows: list[Any],
    stuck: list[Any],
) -> int:
    """Take a trigger that refuses one row for a database that does not answer."""
    return write(leader_id, rows)


def stuck_rows_are_read_again(self: Engine, settled: Settled) -> None:
    """Send a record again whose row only waits to leave the table."""


MUTANTS: Final = named(
    (
        Mutant(Neli, "confirmed", lease_from_receipt, "everything"),
        Mutant(Neli, "heard", proof_without_the_group, "group"),
        Mutant(LeaderTerm, "remaining", lease_without_end, "group"),
        Mutant(LeaderTerm, "refreshed", same_id_after_a_refresh, "database"),
        Mutant(Table, "_marked_by", writes_without_fence, "everything"),
        Mutant(Table, "mark", mark_by_bare_cursor, "broker"),
        Mutant(Table, "reset", keys_not_reset, "broker"),
        Mutant(Waiting, "ended", barrier_down_at_the_ack, "process"),
        Mutant(Pipeline, "_end_each", failure_taken_for_success, "broker"),
        Mutant(Engine, "refresh", no_force_remark, "database"),
        Mutant(Engine, "found", blocked_keys_are_produced, "broker"),
        Mutant(Waiting, "remove", followers_stay, "broker"),
        Mutant(Engine, "refused", followers_overtake_what_is_parked, "poison"),
        Mutant(Lease, "unused", led_again_after_a_stand_down, "process"),
        Mutant(WorkQueue, "begin_drain", no_drain, "graceful"),
        Mutant(Pipeline, "_discard", producer_is_never_discarded, "broker"),
        Mutant(Settler, "advance", settled_without_the_table, "database"),
        Mutant(Trust, "__call__", acts_without_a_look, "process"),
        Mutant(Waiting, "known_among", rows_taken_twice, "database"),
        Mutant(Settler, "_purge", unanswered_purge_is_trusted, "database"),
        Mutant(Attempt, "settled", unparked_rows_are_passed, "poison"),
        Mutant(Settler, "_move_locked", locked_rows_delay_their_settlement, "rows"),
        Mutant(Settler, "_write_parts", refused_rows_count_as_an_outage, "rows"),
        Mutant(Engine, "_note_stuck", stuck_rows_are_read_again, "everything"),
    )
)
"""By name."""
