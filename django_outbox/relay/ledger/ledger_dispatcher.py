"""
The centre of the ledger relay: check leadership, open, read, send.

`step()` is one round of the thread "dispatch". It waits for Kafka, one transaction at
a time, and never for the table: another thread reads pages and settles records
while the next transaction is in progress.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ...exceptions import KafkaError, LedgerRefused, ProducerBroken
from ...message.record import Record
from ..lease import Lease
from ..polling import PollSchedule, report_sweep
from ..ports import Term
from ..takeovers import Takeovers
from ..work_queue import WorkQueue
from .committed_ids import CommittedIds
from .ledger_relay import LedgerRelay
from .page_request import Page, PageRequest
from .ports import Ledger, Transactions
from .settings import LedgerSettings
from .stage import Stage
from .timelines import believed, is_same

logger = logging.getLogger(__name__)

OPEN_INTERVAL: Final = 0.5
"""Seconds between two attempts to open, or to write a ledger that was refused."""

ABORT_PAUSE: Final = 0.05
"""Seconds before the next transaction after one that failed by nobody's fault."""

RETRY_PATIENCE: Final = 0.5
"""Seconds for records that have failed before: all others wait meanwhile."""


class LedgerDispatcher:
    """
    Opens, reads and sends, one round at a time.

    Args:
        transactions: the shard's producer; used on this thread only.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: LedgerSettings,
        *,
        lease: Lease,
        transactions: Transactions,
        queue: WorkQueue[PageRequest, Page],
        clock: Callable[[], float],
    ) -> None:
        self.relay = LedgerRelay(
            batch=settings.batch, page_bytes=settings.page_bytes, retry=settings.retry
        )
        self.stage = Stage.CLOSED
        self.takeovers = Takeovers(
            this_cluster=settings.this_cluster, quiet=settings.quiet
        )
        """What it relays of other clusters."""
        self._settings = settings
        self._lease = lease
        self._transactions = transactions
        self._queue = queue
        self._clock = clock
        self._schedule = PollSchedule(
            busy_interval=settings.busy_interval, idle_interval=settings.idle_interval
        )
        self._run = 0
        self._last: Ledger | None = None
        self._history = ""
        """Of the table."""
        self._ledger = Ledger(history="", records=[])
        """The last one of this run."""
        self._relayed = CommittedIds()
        """What was committed before this run, and may still be in the table."""
        self._trouble = ""
        self._open_at = self._send_at = 0.0

    def step(self) -> float:
        """Do one round; return for how many seconds there is nothing to do."""
        now, queue = self._clock(), self._queue
        self._take_settled(now)
        for page in queue.pages():
            if page.request.run == self._run:
                self._take(page, now)
        term = self._follow(self._lease.term, now)
        if term is None:
            return self._settings.idle_interval
        self._lease.resign_when_overdue(term, now)
        if self.stage is Stage.CLOSED:
            self._open(term, now)
        if self.stage is not Stage.RELAYING:
            return self._settings.idle_interval
        self._hand_over()
        self._read(now)
        has_sent = self._send(term, now)
        self._hand_over()
        return 0.0 if has_sent or queue.has_answers else self._idle()

    def close(self) -> None:
        """Drop the client; the last call."""
        self._transactions.close()

    def _follow(self, term: Term | None, now: float) -> Term | None:
        """Act only under a term that is proven and not being drained."""
        is_proven = term is not None and term.remaining(now) > 0
        if term is not None and is_proven and not self._queue.is_draining(term):
            return self._lease.unused(term, now)
        if term is not None:
            self._lease.stood_down(term.leader_id)
        if self.stage is not Stage.CLOSED:
            self._begin_anew()
        self.takeovers.stop()
        if not self._queue.is_waiting:
            self._queue.tell_drained()
        return None

    # A run: open, learn what was committed, purge it, relay.

    def _begin_anew(self) -> None:
        """End the run: all that is in memory is in the table or in the ledger."""
        self._hand_over()
        self._transactions.close()
        self.stage = Stage.CLOSED
        self._run += 1
        self.relay.forget()

    def _open(self, term: Term, now: float) -> None:
        is_early = now < max(self._open_at, self._schedule.lost_until)
        if is_early or self._queue.is_waiting:
            return
        self._open_at = now + OPEN_INTERVAL
        try:
            self._last = self._transactions.open()
        except KafkaError as error:
            self._transactions.close()
            self._report("Nothing can be sent yet: %s", error)
            return
        self._trouble = ""
        self.stage = Stage.OPENED
        self._queue.read(PageRequest(run=self._run))

    def _compare(self, history: str) -> None:
        """Go on from the ledger; what it lists has to be purged first."""
        self._history = history
        self.stage = Stage.RELAYING
        self._schedule.restart()
        self._ledger = self._believed(self._last)
        self._relayed = CommittedIds(self._ledger.relayed)
        if self._ledger.records:
            self.relay.inherit(self._ledger.records, self._leader_id)
            self.stage = Stage.CLEARING
            self._hand_over()

    def _believed(self, ledger: Ledger | None) -> Ledger:
        """Return what holds of the ledger that was read."""
        clusters = self._settings.clusters
        return believed(ledger, self._history, clusters=clusters)

    def _take_settled(self, now: float) -> None:
        for settled in self._queue.settled():
            self.relay.settled(settled, now)
            if settled.rest is not None:
                self._queue.keep(settled.rest)
            if self.stage is Stage.CLEARING and not self._queue.is_settling:
                self.stage = Stage.RELAYING
        if (rest := self._queue.due_rest(now)) is not None:
            self._queue.submit(rest)

    def _take(self, page: Page, now: float) -> None:
        """Take a page that this run has requested."""
        if page.retry_at is not None:
            self._take_failure(page.retry_at)
        elif self.stage is Stage.OPENED:
            self._compare(page.history)
        elif is_same(page.history, was=self._history):
            self._take_page(page, now)
        else:
            self._begin_anew()

    @property
    def _leader_id(self) -> str:
        term = self._lease.term
        return term.leader_id if term else ""

    def _take_failure(self, retry_at: float) -> None:
        """Nothing was read: ask again later."""
        self._schedule.lost_until = retry_at
        if self.stage is Stage.OPENED:
            self._begin_anew()

    def _take_page(self, page: Page, now: float) -> None:
        request, found = page.request, len(page.records)
        if self._relayed:
            page = replace(
                page,
                of_keys=self._purge_relayed(page.of_keys),
                records=self._purge_relayed(page.records),
            )
        self.relay.found(page, now)
        if request.sweep is None:
            if request.limit:
                since = self._schedule.began_at
                self._schedule.found(found, limit=request.limit, since=since)
            return
        self._schedule.swept(found, now=now)
        self.takeovers.found(self._leader_id, page.records, now)
        report_sweep(found)

    def _purge_relayed(self, records: Sequence[Record]) -> Sequence[Record]:
        """Let rows go that are in the log, and return the others."""
        relayed = self._relayed.among(records)
        if not relayed:
            return records
        self.relay.seen(relayed, self._leader_id)
        gone = {record.id for record in relayed}
        return [record for record in records if record.id not in gone]

    # Reading.

    def _read(self, now: float) -> None:
        """Request what is due, one page at a time."""
        relay, schedule = self.relay, self._schedule
        if self._queue.is_reading or now < schedule.lost_until:
            return
        keys = relay.due(now)
        is_time = now >= self._read_at and relay.has_room
        if not keys and not is_time:
            return
        limit = self._settings.batch if is_time else 0
        sweep = relay.sweep() if schedule.begins(now) and limit else None
        relay.begin_read()
        self._queue.read(
            PageRequest(run=self._run, keys=keys, limit=limit, sweep=sweep)
        )

    @property
    def _read_at(self) -> float:
        """When to read the table: by the schedule, or at once after a commit."""
        return 0.0 if self._queue.is_urgent else self._schedule.read_at

    # Sending.

    def _send(self, term: Term, now: float) -> bool:
        """Send one transaction, if there is something to send."""
        relay, leader_id = self.relay, term.leader_id
        if not self._queue.has_room or now < self._send_at:
            return False
        if not relay.has_work:
            self._transactions.serve()
            return False
        batch, is_retry = relay.next_batch()
        patience = self._settings.delivery_timeout
        clusters = self._settings.clusters
        ledger = self._ledger.followed_by(batch, relay.unpurged, clusters=clusters)
        try:
            faults = self._transactions.send(
                batch,
                leader_id,
                ledger,
                patience=min(patience, RETRY_PATIENCE) if is_retry else patience,
                may_commit=lambda: self._lease.is_trusted(leader_id),
            )
        except LedgerRefused as error:
            self._report("The ledger cannot be written: %s", error)
            relay.halve(batch)
            self._send_at = self._clock() + OPEN_INTERVAL
            return True
        except ProducerBroken as error:
            self._break_off(error)
            return True
        now = self._clock()
        if faults is None:
            self._trouble, self._ledger = "", ledger
            relay.committed(batch, leader_id, now)
            return True
        relay.aborted(batch, faults, leader_id)
        if not faults:
            self._send_at = now + ABORT_PAUSE
        return True

    def _break_off(self, error: ProducerBroken) -> None:
        """End the run: only the ledger knows how the transaction has ended."""
        self._report("The outcome of a transaction is read from the ledger: %s", error)
        self._begin_anew()

    def _hand_over(self) -> None:
        if self._queue.has_room and (settlement := self.relay.settlement()):
            self._queue.submit(settlement)

    def _idle(self) -> float:
        """Seconds until the next page, retry or transaction is due."""
        if not self._queue.has_room or self._queue.is_reading:
            return self._settings.idle_interval
        until = min(self._read_at, self.relay.blocked_keys.retry_at)
        until = max(until, self._schedule.lost_until)
        if self.relay.has_work:
            until = min(until, self._send_at)
        return max(0.0, min(until - self._clock(), self._settings.idle_interval))

    def _report(self, message: str, error: KafkaError) -> None:
        """Log what is in the way, once for each cause."""
        text = str(error)
        level = logging.DEBUG if text == self._trouble else logging.WARNING
        self._trouble = text
        logger.log(level, message, text, extra={"action": "transaction"})
