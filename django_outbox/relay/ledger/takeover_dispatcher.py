"""
The ledger relay for records that another cluster has left.

One for each other cluster, beside the one for this cluster's own records, so
that a takeover delays none of those. While there is nothing to take over it
only looks, at most once a second: the origin's producer is fenced when rows
are found that no ledger knows of, and not before.

Only the cluster that has opened an origin's `transactional.id` relays its records:
the origin, or one other cluster. When the origin comes back it opens, too; the
cluster that is fenced by that keeps away for as long as a rank waits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...exceptions import KafkaError, ProducerBroken
from ...message.record import Record
from ..ports import Term
from .committed_ids import CommittedIds
from .ledger_dispatcher import LedgerDispatcher
from .page_request import Page, PageRequest
from .ports import Ledger
from .stage import Stage

logger = logging.getLogger(__name__)


class TakeoverDispatcher(LedgerDispatcher):
    """
    Relays what one other cluster has left for too long.

    Its table shows the rows of that origin which may be taken over, and its
    transactions are those of the origin.
    """

    _is_on = False
    """Whether there is, or was a moment ago, something to take over."""
    _found_at = 0.0
    _away_until = 0.0
    """Somebody else relays these records: do not read before."""

    def step(self) -> float:
        rest = super().step()
        is_quiet = self._clock() - self._found_at >= self._settings.quiet
        if is_quiet and self.stage is Stage.RELAYING and self.relay.is_idle:
            self._end()
        return rest

    def _follow(self, term: Term | None, now: float) -> Term | None:
        term = super()._follow(term, now)
        if term is None:
            self._is_on = False
        return term

    def _end(self) -> None:
        """Leave the records to others until some are found again."""
        self._is_on = False
        self._begin_anew()
        self.takeovers.stop()

    # Reading, before anything is opened.

    def _open(self, term: Term, now: float) -> None:
        self._hand_over()
        if self._is_on:
            super()._open(term, now)
        elif self._may_probe(now):
            self._queue.read(PageRequest(run=self._run, limit=self._settings.batch))

    def _may_probe(self, now: float) -> bool:
        is_early = now < max(self._away_until, self._schedule.lost_until)
        if is_early or self._queue.is_waiting:
            return False
        return self._schedule.begins(now)

    def _take(self, page: Page, now: float) -> None:
        if self.stage is not Stage.CLOSED:
            super()._take(page, now)
            return
        # The next one begins at the head again.
        self._run += 1
        if page.retry_at is not None:
            self._take_failure(page.retry_at)
            return
        self._schedule.swept(len(page.records), now=now)
        if page.records:
            self._judge(page, now)

    def _judge(self, page: Page, now: float) -> None:
        """Purge what was found and is in the log; take over if there is more."""
        try:
            ledger = self._transactions.read()
        except KafkaError as error:
            self._report("Nothing can be taken over yet: %s", error)
            return
        relayed = _known_to(ledger, page.records)
        self.relay.seen(relayed, self._leader_id)
        if len(relayed) < len(page.records):
            self._is_on, self._found_at = True, now
        else:
            # Behind these there may be more.
            self._schedule.restart()

    # What is different while it is on.

    def _believed(self, ledger: Ledger | None) -> Ledger:
        """Go on from any ledger: the history is that of the origin's database."""
        return ledger or Ledger(history="", records=[])

    def _take_page(self, page: Page, now: float) -> None:
        if page.records or page.of_keys:
            self._found_at = now
        super()._take_page(page, now)
        if page.request.sweep is None:
            self.takeovers.found(self._leader_id, page.records, now)

    def _break_off(self, error: ProducerBroken) -> None:
        if not error.is_fenced:
            super()._break_off(error)
            return
        logger.info(
            "Another cluster relays these records now: %s",
            error,
            extra={"action": "takeover"},
        )
        self._away_until = self._clock() + self._settings.quiet
        self._end()


def _known_to(ledger: Ledger | None, records: Sequence[Record]) -> list[Record]:
    """Return those of the records that a ledger says are in the log."""
    if ledger is None:
        return []
    relayed = CommittedIds(ledger.relayed)
    listed = {record.message_id for record in ledger.records}
    return [r for r in records if r.message_id in listed or r in relayed]
