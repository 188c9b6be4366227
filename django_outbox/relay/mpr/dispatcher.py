"""
The centre of MP/R: check leadership, claim, produce, serve reports.

`step()` is one round of the thread "dispatch". It never waits for the table: fibers
carry out claims and settlements, and the next round takes what has come back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ...exceptions import DeliveryFailed, ProducerBroken, ProducerQueueFull
from ...message.record import Claim, Record, Settlement
from ..availability import Availability
from ..ports import Leadership, Producer, Term
from ..settings import DispatchSettings
from ..work_queue import MAX_OUTSTANDING, Handoff, Post, report_sweep
from .barrier import Relay

logger = logging.getLogger(__name__)

REPORT_WAIT: Final = 0.001
"""Seconds to wait for reports while something is in flight; the client's least."""

TABLE_WAIT: Final = 0.001
"""Seconds to wait for the table between two looks for reports."""

REBUILD_PAUSE: Final = 0.5
"""Seconds from a broken producer to the leader id under which another one is built."""

UNCHECKED: Final = 20
"""Records that are produced between two looks at the lease: some 0.2 milliseconds."""

SLICE: Final = 200
"""Records that are produced before reports are served and settlements handed over."""


class Dispatcher(Handoff[Claim]):
    """
    Marks, produces and reports, one round at a time.

    Args:
        make_producer: builds a producer; called on this thread.
        post, outages, clock: see `Handoff`.
    """

    def __init__(
        self,
        settings: DispatchSettings,
        *,
        leadership: Leadership,
        make_producer: Callable[[], Producer],
        post: Post[Claim],
        outages: Sequence[Availability],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(
            settings, leadership=leadership, post=post, outages=outages, clock=clock
        )
        self.relay = Relay(
            max_in_flight=settings.max_in_flight,
            page_bytes=settings.page_bytes,
            retry=settings.retry,
            marks_in_memory=settings.marks_in_memory,
            per_key=settings.max_in_flight_per_key,
            here=settings.here,
        )
        self._settings = settings
        self._is_pipelined = settings.max_in_flight_per_key != 1
        self._make_producer = make_producer
        self._producer: Producer | None = None
        self._rebuild_at = 0.0
        """When another producer may be built. Boot-time seconds."""
        self._delivered_at = 0.0
        """When the last acknowledgement came, or the producer was built."""
        self._is_kafka_away = False
        """Whether it was logged that nothing is acknowledged."""
        self._watch_at = 0.0
        """When to look next for records that are not acknowledged."""

    def step(self) -> float:
        """Do one round; return for how many seconds there is nothing to do."""
        now = self._clock()
        self._take_answers(now)
        self._take_claimed(now)
        term = self._follow(self._leadership.term, now)
        if term is not None:
            self._lead(term, now)
        has_more = self._produce()
        self._serve_reports(has_more=has_more)
        self._hand_over()
        if has_more or self._answers or self._claimed:
            return 0.0
        if self.relay.unreported:
            # If nothing is asked of the table, the producer's poll is the wait.
            return TABLE_WAIT if self._is_asking else 0.0
        return self._idle(now, is_leading=term is not None)

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
        if relay.unsettled or self._is_claiming:
            return None
        if (fresh := self._unused(term, now)) is not None:
            relay.lead(fresh.leader_id)
            self._pace.restart()
        return fresh

    def _stand_by(self, *, is_proven: bool) -> None:
        """Let what is in flight settle (a drain), or give it up (unproven)."""
        if (leader_id := self.relay.leader_id) is not None:
            self._stood_down_from = leader_id
            self.relay.stand_down()
            self.takeovers.stop()
        if self.relay.in_flight and not is_proven:
            # Another may lead by now: nothing queued here may reach Kafka.
            self._discard_producer()
        if not self.relay.in_flight and not self._is_claiming:
            self._tell_drained()

    def _lead(self, term: Term, now: float) -> None:
        """A3 and B2: ask for what is due, one claim at a time."""
        relay = self.relay
        self._resign_when_overdue(term, now)
        if self._is_claiming:
            return
        if relay.must_remark:
            if now >= self._pace.look_at and not relay.unsettled:
                # A new id helps only when the table can be reached.
                self._ask(Claim(leader_id=term.leader_id))
            return
        lanes = relay.due(now)
        rows = self._settings.mark_batch
        is_due = lanes or now >= self._look_at
        limit = rows if is_due and relay.has_room(rows) else 0
        if lanes or limit:
            claim = Claim(leader_id=term.leader_id, lanes=lanes, limit=limit)
            if limit and self._settings.marks_in_memory:
                self._perhaps_sweep(claim, now)
            self._ask(claim)

    def _perhaps_sweep(self, claim: Claim, now: float) -> None:
        """Let a claim find what was left behind, if it is time and there is room."""
        # Half of what may be in flight is for this cluster's own records.
        room = self._settings.max_in_flight // 2 - self.relay.foreign
        if self._pace.begins(now) and room > 0:
            claim.sweep = self.relay.sweep()
            claim.limit = min(claim.limit, room)

    def _ask(self, claim: Claim) -> None:
        self.relay.begin_claim()
        super()._ask(claim)

    def _take_claimed(self, now: float) -> None:
        while self._claimed:
            claim = self._claimed.popleft()
            self._is_claiming = False
            # Under an id that has ended, the marks mean nothing any more.
            if claim.leader_id == self.relay.leader_id:
                self._take_claim(claim, now)

    def _take_claim(self, claim: Claim, now: float) -> None:
        relay = self.relay
        if claim.retry_at is not None:
            self._pace.look_at = claim.retry_at
            if claim.is_uncertain:
                # The table may hold marks of ours.
                relay.force_remark("the outcome of a mark or reset is unknown")
        elif relay.must_remark:
            if not relay.unsettled:
                self._refresh(claim.leader_id, now)
        else:
            relay.unblock(lane for lane, _ in claim.lanes)
            relay.marked(claim.records)
            here = self._settings.here
            found = len(claim.records)
            if claim.sweep is not None:
                self._pace.swept(found, now=now)
                self.takeovers.found(claim.leader_id, claim.records, now)
                report_sweep(sum(r.cluster_id == here for r in claim.records))
            elif claim.limit:
                self._pace.found(found, limit=claim.limit, since=self._clock())

    def _refresh(self, leader_id: str, now: float) -> None:
        """A9: a new leader id, with nothing in flight and nothing claimed."""
        reason = self.relay.remark_reason
        fresh = self._leadership.refresh(leader_id, reason=reason, now=now)
        if fresh is not None:
            self.relay.lead(fresh.leader_id)
            self._pace.restart()

    def _produce(self) -> bool:
        """A4 to A8: a slice of what may go; return whether there may be more."""
        relay = self.relay
        if relay.must_remark or not relay.queued or relay.leader_id is None:
            return False
        now = self._clock()
        if self._producer is None:
            if now < self._rebuild_at:
                return False
            self._producer = self._make_producer()
            self._delivered_at = now
        records, failed = relay.take(SLICE, now), relay.failed
        rest = self._send(self._producer, relay.leader_id, records)
        if rest is None:
            return len(records) == SLICE
        relay.put_back(rest)
        # When just one was refused, others may go.
        return relay.failed > failed

    def _send(
        self, producer: Producer, leader_id: str, records: Sequence[Record]
    ) -> Sequence[Record] | None:
        """Produce records; return those that may not go now, or None."""
        relay, is_trusted = self.relay, self._is_trusted
        produce, reported, apart = producer.produce, relay.reported, relay.apart
        for start in range(0, len(records), UNCHECKED):
            # A pause or a handover may have come at any line above: check again.
            if relay.must_remark or not is_trusted(leader_id):
                return records[start:]
            for number, record in enumerate(records[start : start + UNCHECKED], start):
                try:
                    produce(record, leader_id, reported, alone=record.id in apart)
                except ProducerQueueFull:
                    return records[number:]
                except ProducerBroken as error:
                    reported(record, error)
                    return records[number + 1 :]
                except DeliveryFailed as error:
                    relay.refused(record, error)
                    # Later records of its key are among them: they may not go now.
                    return records[number + 1 :]
        return None

    def _serve_reports(self, *, has_more: bool) -> None:
        if self._producer is not None and self.relay.unreported:
            is_hurried = has_more or self._answers or self._is_asking
            delivered = self.relay.delivered
            self._producer.poll(0 if is_hurried else REPORT_WAIT)
            if self._is_pipelined:
                self._watch_deliveries(has_news=self.relay.delivered > delivered)
        if self.relay.is_producer_broken:
            self._discard_producer()
            # What broke it may break the next one, too.
            self._pace.look_at = self._clock() + REBUILD_PAUSE

    def _watch_deliveries(self, *, has_news: bool) -> None:
        """Give up a producer whose records are not acknowledged in time."""
        now, timeout = self._clock(), self._settings.delivery_timeout
        if has_news:
            self._delivered_at, self._is_kafka_away = now, False
        if now < self._watch_at:
            return
        self._watch_at = now + timeout / 20
        overdue = self.relay.overdue(now - timeout)
        if not overdue:
            return
        text = f"not acknowledged within {timeout:.0f} s"
        if now - self._delivered_at < timeout:
            # Others were acknowledged, so the broker is there.
            for record in overdue:
                self.relay.reported(record, DeliveryFailed(text, code="_MSG_TIMED_OUT"))
        elif not self._is_kafka_away:
            self._is_kafka_away = True
            logger.warning(
                "Kafka has acknowledged nothing for %.0f s; %d records are sent again",
                timeout,
                self.relay.unreported,
                extra={"action": "delivery_failed", "records": self.relay.unreported},
            )
        self.relay.is_producer_broken = True

    def _hand_over(self) -> None:
        if self._outstanding < MAX_OUTSTANDING and (s := self.relay.settlement()):
            self._submit(s)

    def _take_answer(self, settlement: Settlement, now: float) -> None:
        self.relay.settled(settlement, now=now)

    def _idle(self, now: float, *, is_leading: bool) -> float:
        """Seconds until the next mark or retry is due; an answer comes by itself."""
        relay, until = self.relay, now + self._settings.idle_interval
        if not is_leading or self._is_claiming:
            return until - now
        if relay.must_remark:
            until = until if relay.unsettled else min(until, self._pace.look_at)
        else:
            until = min(until, relay.retry_at)
            if relay.queued and self._producer is None:
                until = min(until, self._rebuild_at)
            if relay.has_room(self._settings.mark_batch):
                until = min(until, self._look_at)
        return max(0.0, until - self._clock())

    def _discard_producer(self) -> None:
        """Give up on all that is queued, and build another producer next time."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.close()
            if self._is_pipelined:
                # What it had sent may reach the log a moment later.
                self._rebuild_at = self._clock() + REBUILD_PAUSE
        self.relay.restart()
