"""
The marking side of MP/R: check leadership, mark, produce, serve reports.

`step()` is one round of the thread "dispatch"; the harvester owns the thread.
Marks and resets share this thread and its connection, so a lane's rows are
reset before the next mark looks for them, never while it does.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ..exceptions import (
    DatabaseError,
    DeliveryFailed,
    ProducerBroken,
    ProducerQueueFull,
)
from ..records import Record, Settlement
from .outage import Outage
from .ports import Leadership, Outbox, Producer, Settled, Term
from .relay import NEVER, Relay
from .settings import DispatchSettings

REPORT_WAIT = 0.001
"""Seconds to wait for reports while something is in flight."""

MAX_OUTSTANDING = 2
"""Settlements handed over and not answered: one at work, one ready."""


class Dispatcher:
    """
    Marks, produces and reports, one round at a time.

    Args:
        make_producer: builds a producer; called on this thread.
        submit: takes a settlement to the settling side; must not block.
        settling: the settling side's view of the table.
        clock: boot-time seconds.
    """

    def __init__(
        self,
        settings: DispatchSettings,
        *,
        outbox: Outbox,
        leadership: Leadership,
        make_producer: Callable[[], Producer],
        submit: Callable[[Settlement], None],
        settling: Outage,
        clock: Callable[[], float],
    ) -> None:
        self.relay = Relay(max_in_flight=settings.max_in_flight, retry=settings.retry)
        self._settings = settings
        self._outbox = outbox
        self._leadership = leadership
        self._make_producer = make_producer
        self._submit = submit
        self._settling = settling
        self._clock = clock
        self._producer: Producer | None = None
        self._on_report: Settled = self._report
        self._answers: deque[Settlement] = deque()
        self._outstanding = 0
        self._wake = threading.Event()
        self._draining: float | None = None
        self._drained = threading.Event()
        self._interval = settings.busy_interval
        self._mark_at = 0.0
        self._outage = Outage()
        self._is_broken = False

    # Called on other threads.

    def drain(self, term: Term, timeout: float) -> bool:
        """
        Stop producing in this term and wait until all of it is settled.

        Called on the elector's thread, inside the barrier. Returns False when
        something is still in flight after `timeout` seconds.
        """
        self.begin_drain(term)
        return self._drained.wait(timeout)

    def begin_drain(self, term: Term) -> None:
        """Stop producing in this term, whatever its id; `is_drained` follows."""
        self._draining = term.acquired_at
        self._drained.clear()
        self._wake.set()

    @property
    def is_drained(self) -> bool:
        """Whether all that was in flight when the drain began is settled."""
        return self._drained.is_set()

    def answer(self, settlement: Settlement) -> None:
        """Take back a settlement that the table now holds."""
        self._answers.append(settlement)
        self._wake.set()

    def wake(self) -> None:
        """End a wait: something changed."""
        self._wake.set()

    # Called on the thread "dispatch".

    def rest(self, seconds: float) -> None:
        """Wait until something changes, for so many seconds at most."""
        if self._wake.wait(seconds):
            self._wake.clear()

    def step(self) -> float:
        """Do one round; return for how many seconds there is nothing to do."""
        now = self._clock()
        self._take_answers(now)
        term = self._follow(self._leadership.term, now)
        has_marked = term is not None and self._lead(term, now)
        self._produce()
        self._serve_reports()
        self._hand_over()
        if has_marked or self._answers:
            return 0.0
        if self.relay.in_flight:
            # The producer's poll was the wait; without one, answers end it.
            return 0.0 if self._producer is not None else self._settings.busy_interval
        return self._idle(is_leading=term is not None)

    def close(self) -> None:
        """Drop the producer; the last call."""
        self._discard_producer()

    def _follow(self, term: Term | None, now: float) -> Term | None:
        """A1: act only under a term that is proven and not being drained."""
        relay = self.relay
        is_proven = term is not None and term.remaining(now) > 0
        if term is None or not is_proven or term.acquired_at == self._draining:
            self._stand_by(is_proven=is_proven)
            return None
        if term.leader_id == relay.leader_id:
            return term
        if relay.leader_id is not None:
            relay.stand_down()
        if relay.in_flight:
            return None
        relay.lead(term.leader_id)
        self._interval, self._mark_at = self._settings.busy_interval, now
        return term

    def _stand_by(self, *, is_proven: bool) -> None:
        """Let what is in flight settle (a drain), or give it up (unproven)."""
        if self.relay.leader_id is not None:
            self.relay.stand_down()
        if self.relay.in_flight and not is_proven:
            # Another may lead by now: nothing queued here may reach Kafka.
            self._discard_producer()
        if self._draining is not None and not self.relay.in_flight:
            self._drained.set()

    def _lead(self, term: Term, now: float) -> bool:
        """A2, A3, A9 and B2: the table's side of a round. True after a mark."""
        relay = self.relay
        self._resign_when_overdue(term, now)
        if now < self._mark_at and (relay.must_remark or now < relay.retry_at):
            return False
        try:
            if relay.must_remark:
                self._refresh(term)
                return False
            if lanes := relay.due(now):
                self._outbox.reset(term.leader_id, lanes)
                relay.unblock(lanes)
                self._mark_at = now
            if now < self._mark_at or relay.queued >= self._settings.mark_batch:
                return False
            if not self._is_trusted(term.leader_id):  # The reset took too long.
                return False
            records = self._outbox.mark(term.leader_id, limit=self._settings.mark_batch)
        except DatabaseError as error:
            self._mark_at = self._outage.lost(error, now)
            # Its outcome is unknown: the table may hold marks of ours.
            relay.force_remark("the outcome of a mark or reset is unknown")
            return False
        self._outage.reached(now)
        relay.marked(records)
        self._plan_next_mark(len(records))
        return True

    def _refresh(self, term: Term) -> None:
        """A9: a new leader id, once nothing is in flight under the old one."""
        relay = self.relay
        if relay.in_flight:
            return
        self._outbox.ping()
        now = self._clock()
        self._outage.reached(now)
        reason = relay.remark_reason
        fresh = self._leadership.refresh(term.leader_id, reason=reason, now=now)
        if fresh is not None:
            relay.lead(fresh.leader_id)

    def _produce(self) -> None:
        """A4 to A8: all that throttle and barrier let through."""
        relay = self.relay
        if relay.must_remark or not relay.queued or relay.leader_id is None:
            return
        producer = self._producer
        if producer is None:
            producer = self._producer = self._make_producer()
        leader_id = relay.leader_id
        while (record := relay.take()) is not None:
            # A pause or a handover may have come at any line above: look anew.
            if not self._is_trusted(leader_id):
                relay.untake(record)
                return
            try:
                producer.produce(
                    record,
                    leader_id,
                    self._on_report,
                    alone=relay.is_suspect(record),
                )
            except ProducerQueueFull:
                relay.untake(record)
                return
            except DeliveryFailed as error:
                self._report(record, error)

    def _is_trusted(self, leader_id: str) -> bool:
        term = self._leadership.term
        return (
            term is not None
            and term.leader_id == leader_id
            and term.remaining(self._clock()) > 0
        )

    def _report(self, record: Record, error: DeliveryFailed | None) -> None:
        self._is_broken |= isinstance(error, ProducerBroken)
        self.relay.reported(record, error)

    def _serve_reports(self) -> None:
        if self._producer is not None and self.relay.in_flight:
            self._producer.poll(0 if self._answers else REPORT_WAIT)
        if self._is_broken:
            self._discard_producer()

    def _hand_over(self) -> None:
        if self._outstanding < MAX_OUTSTANDING and (s := self.relay.settlement()):
            self._outstanding += 1
            self._submit(s)

    def _take_answers(self, now: float) -> None:
        while self._answers:
            self._outstanding -= 1
            self.relay.settled(self._answers.popleft(), now=now)

    def _plan_next_mark(self, found: int) -> None:
        """Look again at once after a full batch, ever later at an empty table."""
        if found:
            self._interval = self._settings.busy_interval
        else:
            self._interval = min(self._interval * 2, self._settings.idle_interval)
        is_full = found == self._settings.mark_batch
        self._mark_at = 0.0 if is_full else self._clock() + self._interval

    def _idle(self, *, is_leading: bool) -> float:
        """Seconds until the next mark or retry is due."""
        until = min(self._mark_at, self.relay.retry_at) if is_leading else NEVER
        return max(0.0, min(until - self._clock(), self._settings.idle_interval))

    def _resign_when_overdue(self, term: Term, now: float) -> None:
        lost = max(self._outage.lasts(now), self._settling.lasts(now))
        if lost >= self._settings.database_deadline:
            reason = f"no database for {lost:.1f} s"
            self._leadership.resign(term.leader_id, reason=reason)

    def _discard_producer(self) -> None:
        """Give up on all that is queued, and build the next producer anew."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.close()
        self._is_broken = False
