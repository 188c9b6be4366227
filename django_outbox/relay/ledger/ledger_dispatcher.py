"""
The centre of the ledger relay: check leadership, open, look, send.

`step()` is one round of the thread "dispatch". It waits for Kafka, one transaction at
a time, and never for the table: another thread reads pages and settles records
while the next transaction is in progress.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ...exceptions import KafkaError, LedgerRefused, ProducerBroken
from ...message.record import Record, Settlement
from ..availability import Availability
from ..ports import Leadership, Term
from ..work_queue import MAX_OUTSTANDING, Handoff, Post, report_sweep
from .committed_ids import CommittedIds
from .ledger_relay import LedgerRelay
from .ports import Ledger, Look, Transactions
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


class LedgerDispatcher(Handoff[Look]):
    """
    Opens, looks and sends, one round at a time.

    Args:
        transactions: the shard's producer; used on this thread only.
        post, outages, clock: see `Handoff`.
    """

    def __init__(
        self,
        settings: LedgerSettings,
        *,
        leadership: Leadership,
        transactions: Transactions,
        post: Post[Look],
        outages: Sequence[Availability],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(
            settings, leadership=leadership, post=post, outages=outages, clock=clock
        )
        self.relay = LedgerRelay(
            batch=settings.batch, page_bytes=settings.page_bytes, retry=settings.retry
        )
        self.stage = Stage.CLOSED
        self._settings = settings
        self._transactions = transactions
        self._run = 0
        self._read: Ledger | None = None
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
        now = self._clock()
        self._take_answers(now)
        self._take_looks(now)
        term = self._follow(self._leadership.term, now)
        if term is None:
            return self._settings.idle_interval
        self._resign_when_overdue(term, now)
        if self.stage is Stage.CLOSED:
            self._open(term, now)
        if self.stage is not Stage.RELAYING:
            return self._settings.idle_interval
        self._hand_over()
        self._look(now)
        has_sent = self._send(term, now)
        self._hand_over()
        return 0.0 if has_sent or self._answers or self._claimed else self._idle()

    def close(self) -> None:
        """Drop the client; the last call."""
        self._transactions.close()

    def _follow(self, term: Term | None, now: float) -> Term | None:
        """Act only under a term that is proven and not being drained."""
        is_proven = term is not None and term.remaining(now) > 0
        if term is not None and is_proven and term.acquired_at != self._draining:
            return self._unused(term, now)
        if term is not None:
            self._stood_down_from = term.leader_id
        if self.stage is not Stage.CLOSED:
            self._begin_anew()
        self.takeovers.stop()
        if not self._is_asking:
            self._tell_drained()
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
        is_early = now < max(self._open_at, self._pace.lost_until)
        if is_early or self._is_asking:
            return
        self._open_at = now + OPEN_INTERVAL
        try:
            self._read = self._transactions.open()
        except KafkaError as error:
            self._transactions.close()
            self._report("Nothing can be sent yet: %s", error)
            return
        self._trouble = ""
        self.stage = Stage.OPENED
        self._ask(Look(run=self._run))

    def _compare(self, history: str) -> None:
        """Go on from the ledger; what it lists has to be purged first."""
        self._history = history
        self.stage = Stage.RELAYING
        self._pace.restart()
        self._ledger = self._believed(self._read)
        self._relayed = CommittedIds(self._ledger.relayed)
        if self._ledger.records:
            self.relay.inherit(self._ledger.records, self._leader_id)
            self.stage = Stage.CLEARING
            self._hand_over()

    def _believed(self, ledger: Ledger | None) -> Ledger:
        """Return what holds of the ledger that was read."""
        clusters = self._settings.clusters
        return believed(ledger, self._history, clusters=clusters)

    def _take_answer(self, settlement: Settlement, now: float) -> None:
        self.relay.settled(settlement, now)
        if self.stage is Stage.CLEARING and not self._outstanding:
            self.stage = Stage.RELAYING

    def _take_looks(self, now: float) -> None:
        while self._claimed:
            look = self._claimed.popleft()
            self._is_claiming = False
            if look.run == self._run:
                self._take(look, now)

    def _take(self, look: Look, now: float) -> None:
        """Take a look that this run has asked for."""
        if look.retry_at is not None:
            self._take_failed_look(look)
        elif self.stage is Stage.OPENED:
            self._compare(look.history)
        elif is_same(look.history, was=self._history):
            self._take_look(look, now)
        else:
            self._begin_anew()

    @property
    def _leader_id(self) -> str:
        term = self._leadership.term
        return term.leader_id if term else ""

    def _take_failed_look(self, look: Look) -> None:
        """Nothing was read: ask again later."""
        self._pace.lost_until = look.retry_at or 0.0
        if self.stage is Stage.OPENED:
            self._begin_anew()

    def _take_look(self, look: Look, now: float) -> None:
        found = len(look.records)
        if self._relayed:
            look.found = self._purge_relayed(look.found)
            look.records = self._purge_relayed(look.records)
        self.relay.found(look, now)
        if look.sweep is None:
            if look.limit:
                self._pace.found(found, limit=look.limit, since=self._pace.began_at)
            return
        self._pace.swept(found, now=now)
        self.takeovers.found(self._leader_id, look.records, now)
        report_sweep(found)

    def _purge_relayed(self, records: list[Record]) -> list[Record]:
        """Let rows go that are in the log, and return the others."""
        relayed = self._relayed.among(records)
        if not relayed:
            return records
        self.relay.seen(relayed, self._leader_id)
        gone = {record.id for record in relayed}
        return [record for record in records if record.id not in gone]

    # Looking.

    def _look(self, now: float) -> None:
        """Ask for what is due, one look at a time."""
        relay, pace = self.relay, self._pace
        if self._is_claiming or now < pace.lost_until:
            return
        held = relay.due(now)
        is_time = now >= self._look_at and relay.has_room
        if not held and not is_time:
            return
        look = Look(
            run=self._run, held=held, limit=self._settings.batch if is_time else 0
        )
        if pace.begins(now) and look.limit:
            look.sweep = relay.sweep()
        relay.begin_look()
        self._ask(look)

    # Sending.

    def _send(self, term: Term, now: float) -> bool:
        """Send one transaction, if there is something to send."""
        relay, leader_id = self.relay, term.leader_id
        if self._outstanding >= MAX_OUTSTANDING or now < self._send_at:
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
                may_commit=lambda: self._is_trusted(leader_id),
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
        if self._outstanding < MAX_OUTSTANDING and (s := self.relay.settlement()):
            self._submit(s)

    def _idle(self) -> float:
        """Seconds until the next look, retry or transaction is due."""
        if self._outstanding >= MAX_OUTSTANDING or self._is_claiming:
            return self._settings.idle_interval
        pace = self._pace
        until = max(min(self._look_at, self.relay.holds.retry_at), pace.lost_until)
        if self.relay.has_work:
            until = min(until, self._send_at)
        return max(0.0, min(until - self._clock(), self._settings.idle_interval))

    def _report(self, message: str, error: KafkaError) -> None:
        """Log what is in the way, once for each cause."""
        text = str(error)
        level = logging.DEBUG if text == self._trouble else logging.WARNING
        self._trouble = text
        logger.log(level, message, text, extra={"action": "transaction"})
