"""
Exactly-once delivery: one Kafka transaction after the other, each with its ledger.

It waits for Kafka and never for the table: other threads read pages and settle records
while a transaction is in progress.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from functools import partial
from math import inf
from typing import Final

from ...exceptions import KafkaError, LedgerRefused, ProducerBroken, RecordPoisoned
from ...message.record import Record
from ..batch import ABANDONED, TIMED_OUT, Accepted, Batch, Fault
from ..engine import Engine
from ..lease import Trust
from ..page_request import Page, PageRequest
from ..settings import RelaySettings
from ..work_queue import WorkQueue
from .committed_ids import CommittedIds, row_of
from .ports import Ledger, Transactions
from .timelines import believed

logger = logging.getLogger(__name__)

OPEN_INTERVAL: Final = 0.5
"""Seconds between two attempts to open, or to write a ledger that was refused."""

ABORT_PAUSE: Final = 0.05
"""Seconds before the next transaction after one that failed by nobody's fault."""

MIN_TRANSACTION_RECORDS: Final = 250
"""Minimum records per transaction after a slow one; smaller ones would not be
faster."""

RETRY_TIMEOUT: Final = 0.5
"""Seconds for a transaction with records that failed before, or of a topic that was
late: all others wait meanwhile. More where transactions take long."""

LATE_TOPIC_TIMEOUTS: Final = 4
"""Delivery time-outs for which a topic with a late record gets the shorter time-out."""


class Stage(Enum):
    """How far a run has come."""

    CLOSED = auto()
    """No client: this process does not lead, or has to begin again."""
    OPENED = auto()
    """The ledger is read, and the table is asked for its timeline."""
    CLEARING = auto()
    """What the ledger lists is being purged."""
    RELAYING = auto()


class LedgerSender:
    """
    Sends what the engine hands out, in transactions.

    Args:
        transactions: the shard's producer; used on one thread only.
        is_trusted: asked directly before each commit.
        is_own: whether the records are this cluster's, so that the timeline of the
            table is that of the ledger.
        clock: monotonic seconds.
    """

    remembers = True
    """Whether the next leader knows what is in the log and not purged."""

    def __init__(
        self,
        settings: RelaySettings,
        *,
        engine: Engine,
        transactions: Transactions,
        queue: WorkQueue,
        is_trusted: Trust,
        clock: Callable[[], float],
        is_own: bool = True,
    ) -> None:
        self.stage = Stage.CLOSED
        self.is_fenced = False
        """Whether somebody else has opened the same transactions since this one has."""
        self._settings = settings
        self._engine = engine
        self._transactions = transactions
        self._queue = queue
        self._is_trusted = is_trusted
        self._clock = clock
        self._is_own = is_own
        self._size = settings.page_rows
        self._last: Ledger | None = None
        self._others: Sequence[Ledger] = ()
        """Last ledgers of leaders that divided the keys differently, and of the other
        shards."""
        self._ledger = Ledger(timeline="", records=[])
        """The last one of this run."""
        self._relayed = CommittedIds()
        """What was committed before this run, or is another shard's to purge, and may
        still be in the table."""
        self._seen: set[int] = set()
        """Ids of rows that were found, and which an earlier ledger speaks for."""
        self._late: dict[str, float] = {}
        """By topic with a record that was late, when it gets patience again."""
        self._took = 0.0
        """Seconds that the last committed transaction took."""
        self._trouble = ""
        self._open_at = self._send_at = 0.0

    # The port `Sender`.

    def prepare(self, leader_id: str, now: float) -> bool:
        if self.stage is Stage.CLOSED:
            self._open(leader_id, now)
        if self.stage is Stage.CLEARING and not self._engine.unsettled:
            self.stage = Stage.RELAYING
        return self.stage is Stage.RELAYING

    def admit(self, page: Page, now: float) -> Sequence[Record] | None:
        """Let rows that are in the log go, and return the others."""
        if self.stage is Stage.OPENED:
            if page.retry_at is not None:
                self.begin_again()
            else:
                self._compare(page.timeline)
            return None
        if not self._relayed or not (relayed := self._relayed.among(page.records)):
            return page.records
        self.seen(relayed)
        gone = {record.id for record in relayed}
        return [record for record in page.records if record.id not in gone]

    def send(self, leader_id: str, now: float) -> bool:
        """Send one transaction, if there is something to send."""
        engine = self._engine
        if not self._queue.has_room or now < self._send_at or engine.must_refresh:
            return False
        page_bytes = self._settings.page_bytes
        batch = engine.take(self._size, now, page_bytes=page_bytes)
        if batch is None:
            return False
        ledger = self._ledger.followed_by(
            batch.records, self._unpurged(), clusters=self._settings.clusters
        )
        patience = self._patience(batch, now)
        try:
            faults = self._transactions.send(
                batch.records,
                leader_id,
                ledger,
                patience=patience,
                may_commit=lambda: self._is_trusted(leader_id),
            )
        except LedgerRefused as error:
            self.report("The ledger cannot be written: %s", error)
            self._halve(batch)
            self._send_at = self._clock() + OPEN_INTERVAL
        except ProducerBroken as error:
            engine.cut(batch, Accepted(0))
            self._break_off(error)
        else:
            if faults and patience >= self._settings.delivery_timeout:
                self._note_late(faults)
            self._end(batch, faults, ledger)
        return True

    def _patience(self, batch: Batch, now: float) -> float:
        """Return for how many seconds to wait until all of a batch is in the log."""
        most = self._settings.delivery_timeout
        late = self._late = {t: end for t, end in self._late.items() if end > now}
        if batch.is_apart or (late and any(r.topic in late for r in batch.records)):
            return min(most, max(RETRY_TIMEOUT, 2 * self._took))
        return most

    def serve(self, *, is_hurried: bool) -> None:
        if self.stage is Stage.RELAYING and not self._engine.waiting:
            self._transactions.serve()

    def stop(self, *, is_proven: bool) -> None:
        if self.stage is not Stage.CLOSED:
            self._transactions.close()
            self.stage = Stage.CLOSED

    def wait(self, now: float) -> float:
        may_send = self._engine.waiting.may_go and self._queue.has_room
        return self._send_at if may_send else inf

    def close(self) -> None:
        self._transactions.close()

    # A run: open, learn what was committed, purge it, relay.

    def begin_again(self) -> None:
        """End the run: all that is in memory is in the table or in the ledger."""
        self.stop(is_proven=True)
        if self._engine.leader_id is not None:
            self._engine.begin(self._engine.leader_id)

    def _open(self, leader_id: str, now: float) -> None:
        if now < self._open_at or self._queue.is_waiting or self._engine.unsettled:
            return
        self._open_at = now + OPEN_INTERVAL
        try:
            self._last = self._transactions.open()
            self._others = self._transactions.others()
        except KafkaError as error:
            self._transactions.close()
            self.report("Nothing can be sent yet: %s", error)
            return
        self._trouble, self.is_fenced = "", False
        self.stage = Stage.OPENED
        self._queue.read(PageRequest(run=self._engine.run, leader_id=leader_id))

    def _compare(self, timeline: str) -> None:
        """Go on from the ledger; what it lists has to be purged first."""
        self.stage = Stage.CLEARING
        believe = partial(believed, clusters=self._settings.clusters)
        if self._is_own:
            self._ledger = believe(self._last, timeline)
        else:
            # The timeline is that of the origin's database.
            self._ledger = self._last or Ledger(timeline="", records=[])
        others = [believe(one, timeline) for one in self._others]
        # What a leader of another shard lists now, it also purges.
        of_now = [one for one in others if one.shards == self._settings.shards]
        former = [one for one in others if one.shards != self._settings.shards]
        self._relayed = CommittedIds(self._ledger.relayed, _listed_in(of_now))
        listed = {row_of(r): r for r in _listed_in([self._ledger, *former])}
        for record in self._engine.unpurged:
            listed.pop(row_of(record), None)
        self._engine.in_log([*listed.values()])

    def seen(self, records: Sequence[Record]) -> None:
        """Take rows that were found, and are in the log already: to be purged."""
        known = self._engine.waiting.known
        fresh = [record for record in records if record.id not in known]
        self._seen = (self._seen & known).union([record.id for record in fresh])
        self._engine.in_log(fresh)

    def _unpurged(self) -> list[Record]:
        """Return records of earlier transactions whose rows may still be there."""
        records = self._engine.unpurged
        if not self._seen:
            return records
        # An earlier ledger speaks for these, and so do the ranges of the next one.
        self._seen &= self._engine.waiting.known
        return [record for record in records if record.id not in self._seen]

    # The outcome of a transaction.

    def _end(
        self, batch: Batch, faults: Sequence[Fault] | None, ledger: Ledger
    ) -> None:
        engine = self._engine
        if faults is None:
            self._trouble, self._ledger = "", ledger
            self._took = self._clock() - batch.taken_at
            self._resize(batch)
            engine.ended(batch)
            engine.delivered(batch.records)
            return
        certain = [fault for fault in faults if _is_certain(fault)]
        if certain:
            self._resize(batch)
            failed = {fault.record.id for fault in certain}
            survivors = [r for r in batch.records if r.id not in failed]
            # They go alone: what has come meanwhile may fail in the same way.
            self._size = len(survivors) or self._size
            engine.ended(batch)
            engine.refused(certain)
            engine.recall(survivors)
        elif faults:
            # One record of the batch is at fault: a smaller batch narrows it down.
            self._halve(batch)
        else:
            engine.cut(batch, Accepted(0))
            self._send_at = self._clock() + ABORT_PAUSE

    def _note_late(self, faults: Sequence[Fault]) -> None:
        """Have less patience with topics whose records were not in the log in time."""
        until = self._clock() + LATE_TOPIC_TIMEOUTS * self._settings.delivery_timeout
        for record, error in faults:
            if error.code == TIMED_OUT or error.code in ABANDONED:
                self._late[record.topic] = until

    def _resize(self, batch: Batch) -> None:
        """Take twice as many next, and half as many behind one that took long."""
        most = self._settings.page_rows
        took = self._clock() - batch.taken_at
        if took > self._settings.delivery_timeout / 2:
            most = min(most, max(MIN_TRANSACTION_RECORDS, len(batch.records) // 2))
        self._size = min(self._size * 2, most)

    def _halve(self, batch: Batch) -> None:
        """Take fewer records than this batch has for the next one."""
        self._size = max(1, len(batch.records) // 2)
        self._engine.cut(batch, Accepted(0))

    def _break_off(self, error: ProducerBroken) -> None:
        """End the run: only the ledger knows how the transaction has ended."""
        self.is_fenced = error.is_fenced
        self.report("The outcome of a transaction is read from the ledger: %s", error)
        self.begin_again()

    def report(self, message: str, error: KafkaError) -> None:
        """Log what is in the way, once for each cause."""
        text = str(error)
        level = logging.DEBUG if text == self._trouble else logging.WARNING
        self._trouble = text
        logger.log(level, message, text, extra={"action": "transaction"})


def _listed_in(ledgers: Iterable[Ledger]) -> list[Record]:
    return [record for ledger in ledgers for record in ledger.records]


def _is_certain(fault: Fault) -> bool:
    """Whether this record is at fault, and not a neighbour in its batch."""
    return not isinstance(fault.error, RecordPoisoned) or fault.error.is_certain
