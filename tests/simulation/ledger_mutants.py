"""
Deliberate bugs of the relay that keeps a ledger; see `mutants.py`.

Each is one wrong method. Some were in this project until a simulated history,
or a test with real servers, showed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from django_outbox.exceptions import ProducerBroken
from django_outbox.message.record import KeyToRead, Record
from django_outbox.relay.batch import Fault
from django_outbox.relay.blocked_key import BlockedKeys
from django_outbox.relay.dispatcher import Dispatcher
from django_outbox.relay.engine import Engine
from django_outbox.relay.gaps import Gaps
from django_outbox.relay.lease import Trust
from django_outbox.relay.ledger import ledger_sender
from django_outbox.relay.ledger.ledger_sender import LedgerSender
from django_outbox.relay.ledger.ports import Ledger
from django_outbox.relay.settlement import Settlement
from django_outbox.relay.settler import Attempt, Settler
from django_outbox.relay.waiting_records import Waiting
from tests.fakes.outbox import Row
from tests.fakes.transactor import Transactor

from .ledger_connection import LedgerConnection, UnmarkedConnection
from .ledger_table import LedgerTable
from .mutant import Mutant, named
from .mutants import purged_rows_return, rows_taken_twice
from .pipelined_mutants import what_has_failed_is_forgotten
from .transactions import SimulatedTransactions

_send = LedgerSender.send
_open = SimulatedTransactions.open
_carry = SimulatedTransactions.send
_compare = LedgerSender._compare
_page = UnmarkedConnection.page
_put_back = Engine._put_back
_step = Dispatcher.step
_advance = Settler.advance


# The ledger.


def purge_before_the_commit(self: LedgerSender, leader_id: str, now: float) -> bool:
    """Purge what is about to be sent."""
    if self._queue.has_room and now >= self._send_at:
        head = list(islice(self._engine.waiting._own, self._size))
        purge = Settlement(leader_id=leader_id, acknowledged=head)
        self._engine._submitted.append(purge)
        self._queue.submit(purge)
    return _send(self, leader_id, now)


def ledger_without_the_unpurged(self: LedgerSender) -> list[Record]:
    """Write down this transaction's records only."""
    return []


def ledger_ignored_at_takeover(self: LedgerSender, timeline: str) -> None:
    """Begin at the head of the table, whatever the ledger says."""
    self._last = None
    _compare(self, timeline)


def pages_of_a_run_that_has_ended(self: Dispatcher) -> float:
    """Take a page that was requested before all was forgotten."""
    for page in [*self._queue._pages]:
        request = replace(page.request, run=self.engine.run)
        self._queue._pages.remove(page)
        self._queue._pages.append(replace(page, request=request))
    return _step(self)


def ledger_read_before_the_fence(self: SimulatedTransactions) -> Ledger | None:
    """Read the ledger, and only then fence the former leader."""
    former = self._world.ledgers.get(0)
    _open(self)
    return former


def outcome_taken_for_committed(
    self: SimulatedTransactions, *args: Any, **named: Any
) -> Sequence[Fault] | None:
    """Guess that a commit without an answer is one."""
    try:
        return _carry(self, *args, **named)
    except ProducerBroken:
        return None


def outcome_taken_for_aborted(
    self: SimulatedTransactions, *args: Any, **named: Any
) -> Sequence[Fault] | None:
    """Guess that a commit without an answer is none."""
    try:
        return _carry(self, *args, **named)
    except ProducerBroken:
        return []


# The fences.


def no_generation_in_the_transaction(self: SimulatedTransactions) -> bool:
    """Rely on the transactional id alone, which a zombie may take over again."""
    return True


def old_epochs_are_taken(self: object, transactional_id: str, epoch: int) -> bool:
    """Fence nobody."""
    return True


def leads_whatever_the_clock_says(self: Trust, leader_id: str) -> bool:
    """Do not ask again before the commit."""
    return True


# Finding rows.


def forget_gaps_at_once(
    self: Gaps, writers: frozenset[str], *, is_one_prepared: bool
) -> None:
    """Look at a gap once more, whoever may still be about to fill it."""
    for gap in self._gaps:
        gap.is_last_look = True


def forget_gaps_of_prepared_writers(
    self: Gaps, writers: frozenset[str], *, is_one_prepared: bool
) -> None:
    """Take a transaction that changes its name for one that has ended."""
    for gap in self._gaps:
        if gap.open_writers is None:
            gap.open_writers = writers
        elif gap.open_writers.isdisjoint(writers):
            gap.is_last_look = True


def bare_cursor(self: Gaps, ids: Sequence[int]) -> None:
    """Remember no gaps."""
    self.position = max(self.position, *ids, 0)


def gaps_and_page_in_two_snapshots(
    self: UnmarkedConnection,
    position: int,
    gaps: Sequence[tuple[int, int]],
    keys_to_read: Sequence[KeyToRead] = (),
    *,
    limit: int,
) -> list[Record]:
    """Read the gaps first, then what lies behind the position."""
    late = _page(self, 2**62, gaps, limit=limit) if gaps else []
    self._process.sleep(0.002)
    return (late + _page(self, position, [], keys_to_read, limit=limit))[:limit]


def purge_given_up(self: Settler, attempt: Attempt) -> None:
    """Take a purge for done when the table does not answer."""
    _advance(self, attempt)
    attempt.purged = len(attempt.settlement.acknowledged)
    attempt.unpurged.clear()


# Records that fail.


def followers_overtake(self: BlockedKeys, record: Record) -> bool:
    """Send what follows a record that could not be sent."""
    return False


def neighbours_are_guilty(fault: Fault) -> bool:
    """Take what is said of a batch for said of each of its records."""
    return True


def key_is_blocked_from_the_failed_record_on(
    self: Engine, records: Sequence[Record]
) -> None:
    """Drop what stands before a failed record in its key, too."""
    lows = {key: blocked.low for key, blocked in self.blocked.items()}
    _put_back(self, records)
    for key, low in lows.items():
        self.blocked[key].low = low


# Failovers.


def rows_known_by_their_ids(
    self: LedgerTable, leader_id: str, records: Iterable[Record]
) -> list[Row]:
    """Purge whatever has the id of a record that was sent."""
    rows = (self._rows.get(record.id) for record in records)
    return [row for row in rows if row is not None]


def timelines_are_the_same(self: LedgerConnection) -> str:
    """Notice no failover."""
    return "the only one"


_OWN: Final = named(
    mutant._replace(delivery="exactly-once")
    for mutant in (
        Mutant(LedgerSender, "send", purge_before_the_commit, "broker"),
        Mutant(LedgerSender, "_unpurged", ledger_without_the_unpurged, "takeover"),
        Mutant(LedgerSender, "_compare", ledger_ignored_at_takeover, "takeover"),
        Mutant(SimulatedTransactions, "open", ledger_read_before_the_fence, "process"),
        Mutant(SimulatedTransactions, "send", outcome_taken_for_committed, "broker"),
        Mutant(SimulatedTransactions, "send", outcome_taken_for_aborted, "broker"),
        Mutant(
            SimulatedTransactions,
            "_is_member",
            no_generation_in_the_transaction,
            "zombie",
        ),
        Mutant(Transactor, "is_current", old_epochs_are_taken, "zombie"),
        Mutant(Trust, "__call__", leads_whatever_the_clock_says, "process"),
        Mutant(Gaps, "note_writers", forget_gaps_at_once, "graceful"),
        Mutant(Gaps, "note_writers", forget_gaps_of_prepared_writers, "graceful"),
        Mutant(Gaps, "shown", bare_cursor, "graceful"),
        Mutant(UnmarkedConnection, "page", gaps_and_page_in_two_snapshots, "graceful"),
        Mutant(Settler, "advance", purge_given_up, "database"),
        Mutant(BlockedKeys, "keeps", followers_overtake, "poison"),
        Mutant(ledger_sender, "_is_certain", neighbours_are_guilty, "poison"),
        Mutant(
            Engine,
            "_put_back",
            key_is_blocked_from_the_failed_record_on,
            "poison",
        ),
        Mutant(LedgerTable, "_owned", rows_known_by_their_ids, "failover"),
        Mutant(
            LedgerConnection, "database_timeline", timelines_are_the_same, "failover"
        ),
    )
)
_SHARED: Final = named(
    mutant._replace(delivery="exactly-once")
    for mutant in (
        Mutant(Dispatcher, "step", pages_of_a_run_that_has_ended, "broker"),
        Mutant(Engine, "settled", purged_rows_return, "poison"),
        Mutant(Waiting, "known_among", rows_taken_twice, "poison"),
        Mutant(Waiting, "put_back", what_has_failed_is_forgotten, "poison"),
    )
)
MUTANTS: Final = {
    **_OWN,
    **{f"exactly-once-{name}": mutant for name, mutant in _SHARED.items()},
}
"""By name."""
