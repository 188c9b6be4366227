"""
Exactly-once delivery of records that another cluster has left.

There is one for each other cluster, beside the one for this cluster's own records, so
that a takeover delays none of those. It reads by scans of the whole table: records may
be taken over by their age, which does not follow their ids. While there is nothing to
take over it only looks, at most once a second: the origin's producer is fenced when
rows are found that no ledger knows of, and not before.

Only the cluster that has opened an origin's `transactional.id` relays its records:
the origin, or one other cluster. When the origin comes back it opens, too; the
cluster that is fenced by that keeps away for as long as a rank waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from ...exceptions import KafkaError
from ...message.pauses import NOTHING_PAUSED
from ...message.record import OrderingKey, Record, Sweep
from ..engine import Engine
from ..page_request import Page, PageRequest
from ..polling import PollSchedule
from ..settings import RelaySettings
from ..work_queue import WorkQueue
from .committed_ids import CommittedIds
from .ledger_sender import LedgerSender, Stage
from .ports import Transactions

logger = logging.getLogger(__name__)

REFUSED_DELAYS: Final = 10
"""Maximum delays after a fence for which records that cannot be sent are no reason to
take over: the origin lives, and would be fenced again and again."""


class TakeoverSender:
    """
    Relays what one other cluster has left for too long.

    Its table shows the rows of that origin which may be taken over, and its
    transactions are those of the origin.

    Args:
        sender: sends in these transactions while there is something to take over.
        clock: monotonic seconds.
    """

    remembers = True
    """Whether the next leader knows what is in the log and not purged."""

    def __init__(
        self,
        settings: RelaySettings,
        *,
        engine: Engine,
        sender: LedgerSender,
        transactions: Transactions,
        queue: WorkQueue,
        schedule: PollSchedule,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._sender = sender
        self._transactions = transactions
        self._queue = queue
        self._schedule = schedule
        self._clock = clock
        self._is_on = False
        """Whether there is, or was a moment ago, something to take over."""
        self._found_at = 0.0
        self._away_until = 0.0
        """Somebody else relays these records: do not read before."""
        self._pauses = NOTHING_PAUSED
        """What was paused when it last looked."""
        self._refused: set[OrderingKey] = set()
        """Keys with a record that this cluster could not send."""
        self._refused_until = 0.0

    def prepare(self, leader_id: str, now: float) -> bool:
        if not self._is_on:
            self._probe(leader_id, now)
            return False
        is_ready = self._sender.prepare(leader_id, now)
        is_quiet = now - self._found_at >= self._settings.quiet
        if is_ready and is_quiet and self._engine.is_idle:
            self._end()
        return is_ready and self._is_on

    def admit(self, page: Page, now: float) -> Sequence[Record] | None:
        if not self._is_on:
            self._judge(page, now)
            return None
        is_open = self._sender.stage is Stage.RELAYING
        records = self._sender.admit(page, now)
        if is_open and page.records:
            self._found_at = now
        return records

    def send(self, leader_id: str, now: float) -> bool:
        blocked = self._engine.blocked.items()
        self._refused.update(key for key, one in blocked if one.attempts)
        has_sent = self._sender.send(leader_id, now)
        if self._sender.is_fenced:
            logger.info(
                "Another cluster relays these records now",
                extra={"action": "takeover"},
            )
            self._sender.is_fenced = False
            quiet = self._settings.quiet
            self._away_until = self._clock() + quiet
            self._refused_until = self._clock() + REFUSED_DELAYS * quiet
            self._end()
        return has_sent

    def serve(self, *, is_hurried: bool) -> None:
        self._sender.serve(is_hurried=is_hurried)

    def stop(self, *, is_proven: bool) -> None:
        self._is_on = False
        self._sender.stop(is_proven=is_proven)

    def wait(self, now: float) -> float:
        return self._sender.wait(now) if self._is_on else inf

    def close(self) -> None:
        self._sender.close()

    def _end(self) -> None:
        """Leave the records to others until some are found again."""
        self._is_on = False
        self._sender.begin_again()
        self._engine.takeovers.stop()

    # Reading, before anything is opened.

    def _probe(self, leader_id: str, now: float) -> None:
        is_early = now < max(self._away_until, self._schedule.lost_until)
        if is_early or self._queue.is_waiting or not self._schedule.must_sweep(now):
            return
        self._schedule.requested(now)
        if now >= self._refused_until:
            self._refused.clear()
        self._queue.read(
            PageRequest(
                run=self._engine.run,
                leader_id=leader_id,
                limit=self._settings.page_rows,
                # A page full of paused or stuck rows would hide those behind it.
                sweep=Sweep(
                    known=frozenset(self._engine.waiting.known),
                    passed=(*self._pauses.keys, *self._refused),
                    passed_topics=self._pauses.topics,
                    is_whole=True,
                ),
            )
        )

    def _judge(self, page: Page, now: float) -> None:
        """Purge what was found and is in the log; take over if there is more."""
        self._pauses = pauses = self._engine.blocked.pauses
        # The next one reads the pauses again.
        self._engine.begin(page.request.leader_id)
        if page.retry_at is not None:
            return
        self._schedule.swept(len(page.records), now=now)
        if not page.records:
            return
        try:
            ledger = self._transactions.read()
        except KafkaError as error:
            self._sender.report("Nothing can be taken over yet: %s", error)
            return
        known = (
            CommittedIds(ledger.relayed, ledger.records) if ledger else CommittedIds()
        )
        relayed = known.among(page.records)
        self._sender.seen(relayed)
        ids = {record.id for record in relayed}
        if any(r.id not in ids and not pauses.holds(r) for r in page.records):
            self._is_on, self._found_at = True, now
        if self._is_on or relayed:
            # Behind what is in the log there may be more.
            self._schedule.restart()
