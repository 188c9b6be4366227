"""
The centre of MP/R: check leadership, mark, produce, serve reports.

`step()` is one round of the thread "dispatch". It never waits for the table: fibers
carry out requests and settlements, and the next round takes what has come back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ...exceptions import DeliveryFailed, ProducerBroken, ProducerQueueFull
from ...message.record import Record
from ..lease import Lease
from ..polling import PollSchedule, report_sweep
from ..ports import Producer, Term
from ..settings import DispatchSettings
from ..takeovers import Takeovers
from ..work_queue import WorkQueue
from .barrier import Relay
from .mark_request import MarkedPage, MarkRequest

logger = logging.getLogger(__name__)

REPORT_WAIT: Final = 0.001
"""Seconds to wait for reports while something is in flight; the client's least."""

TABLE_WAIT: Final = 0.001
"""Seconds to wait for the table between two polls for reports."""

REBUILD_PAUSE: Final = 0.5
"""Seconds from a broken producer to the leader id under which another one is built."""

UNCHECKED: Final = 20
"""Records that are produced between two checks of the lease: some 0.2 milliseconds."""

SLICE: Final = 200
"""Records that are produced before reports are served and settlements handed over."""


class Dispatcher:
    """
    Marks, produces and reports, one round at a time.

    Args:
        make_producer: builds a producer; called on this thread.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: DispatchSettings,
        *,
        lease: Lease,
        make_producer: Callable[[], Producer],
        queue: WorkQueue[MarkRequest, MarkedPage],
        clock: Callable[[], float],
    ) -> None:
        self.relay = Relay(
            max_in_flight=settings.max_in_flight,
            page_bytes=settings.page_bytes,
            retry=settings.retry,
            marks_in_memory=settings.marks_in_memory,
            per_key=settings.max_in_flight_per_key,
            this_cluster=settings.this_cluster,
        )
        self.takeovers = Takeovers(
            this_cluster=settings.this_cluster, quiet=settings.quiet
        )
        """What it relays of other clusters."""
        self._settings = settings
        self._lease = lease
        self._queue = queue
        self._clock = clock
        self._schedule = PollSchedule(
            busy_interval=settings.busy_interval, idle_interval=settings.idle_interval
        )
        self._is_pipelined = settings.max_in_flight_per_key != 1
        self._make_producer = make_producer
        self._producer: Producer | None = None
        self._rebuild_at = 0.0
        """When another producer may be built. Monotonic seconds."""
        self._delivered_at = 0.0
        """When the last acknowledgement came, or the producer was built."""
        self._is_kafka_away = False
        """Whether it was logged that nothing is acknowledged."""
        self._watch_at = 0.0
        """When to check next for records that are not acknowledged."""

    def step(self) -> float:
        """Do one round; return for how many seconds there is nothing to do."""
        now, queue = self._clock(), self._queue
        self._take_settled(now)
        for page in queue.pages():
            # Under an id that has ended, the marks mean nothing any more.
            if page.request.leader_id == self.relay.leader_id:
                self._take_page(page, now)
        term = self._follow(self._lease.term, now)
        if term is not None:
            self._lead(term, now)
        has_more = self._produce()
        self._serve_reports(has_more=has_more)
        self._hand_over()
        if has_more or queue.has_answers:
            return 0.0
        if self.relay.unreported:
            # If nothing is asked of the table, the producer's poll is the wait.
            return TABLE_WAIT if queue.is_waiting else 0.0
        return self._idle(now, is_leading=term is not None)

    def close(self) -> None:
        """Drop the producer; the last call."""
        self._discard_producer()

    def _follow(self, term: Term | None, now: float) -> Term | None:
        """A1: act only under a term that is proven and not being drained."""
        relay = self.relay
        is_proven = term is not None and term.remaining(now) > 0
        if term is None or not is_proven or self._queue.is_draining(term):
            self._stand_by(is_proven=is_proven)
            return None
        if term.leader_id == relay.leader_id:
            return term
        if relay.leader_id is not None:
            relay.stand_down()
        if relay.unsettled or self._queue.is_reading:
            return None
        if (fresh := self._lease.unused(term, now)) is not None:
            relay.lead(fresh.leader_id)
            self._schedule.restart()
        return fresh

    def _stand_by(self, *, is_proven: bool) -> None:
        """Let what is in flight settle (a drain), or give it up (unproven)."""
        if (leader_id := self.relay.leader_id) is not None:
            self._lease.stood_down(leader_id)
            self.relay.stand_down()
            self.takeovers.stop()
        if self.relay.in_flight and not is_proven:
            # Another may lead by now: nothing queued here may reach Kafka.
            self._discard_producer()
        if not self.relay.in_flight and not self._queue.is_reading:
            self._queue.tell_drained()

    def _lead(self, term: Term, now: float) -> None:
        """A3 and B2: ask for what is due, one request at a time."""
        relay, leader_id = self.relay, term.leader_id
        self._lease.resign_when_overdue(term, now)
        if self._queue.is_reading:
            return
        if relay.must_remark:
            if now >= self._schedule.read_at and not relay.unsettled:
                # A new id helps only when the table can be reached.
                self._mark(MarkRequest(leader_id=leader_id))
            return
        keys = relay.due(now)
        rows = self._settings.mark_batch
        is_due = keys or now >= self._read_at
        limit = rows if is_due and relay.has_room(rows) else 0
        sweep = None
        if limit and self._settings.marks_in_memory and self._schedule.begins(now):
            # Half of what may be in flight is for this cluster's own records.
            room = self._settings.max_in_flight // 2 - relay.of_others
            if room > 0:
                limit, sweep = min(limit, room), relay.sweep()
        if keys or limit:
            self._mark(
                MarkRequest(leader_id=leader_id, keys=keys, limit=limit, sweep=sweep)
            )

    @property
    def _read_at(self) -> float:
        """When to read the table: by the schedule, or at once after a commit."""
        return 0.0 if self._queue.is_urgent else self._schedule.read_at

    def _mark(self, request: MarkRequest) -> None:
        self.relay.begin_mark()
        self._queue.read(request)

    def _take_page(self, page: MarkedPage, now: float) -> None:
        relay, request, schedule = self.relay, page.request, self._schedule
        if page.retry_at is not None:
            schedule.read_at = page.retry_at
            if page.is_uncertain:
                # The table may hold marks of ours.
                relay.force_remark("the outcome of a mark or reset is unknown")
        elif relay.must_remark:
            if not relay.unsettled:
                self._refresh(request.leader_id, now)
        else:
            relay.unblock(ordering_key for ordering_key, _ in request.keys)
            relay.marked(page.records)
            this_cluster, found = self._settings.this_cluster, len(page.records)
            if request.sweep is not None:
                schedule.swept(found, now=now)
                self.takeovers.found(request.leader_id, page.records, now)
                report_sweep(sum(r.cluster_id == this_cluster for r in page.records))
            elif request.limit:
                schedule.found(found, limit=request.limit, since=self._clock())

    def _refresh(self, leader_id: str, now: float) -> None:
        """A9: a new leader id, with nothing in flight and nothing claimed."""
        reason = self.relay.remark_reason
        fresh = self._lease.refresh(leader_id, reason=reason, now=now)
        if fresh is not None:
            self.relay.lead(fresh.leader_id)
            self._schedule.restart()

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
        relay, is_trusted = self.relay, self._lease.is_trusted
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
            is_hurried = has_more or self._queue.has_answers or self._queue.is_waiting
            delivered = self.relay.delivered
            self._producer.poll(0 if is_hurried else REPORT_WAIT)
            if self._is_pipelined:
                self._watch_deliveries(has_news=self.relay.delivered > delivered)
        if self.relay.is_producer_broken:
            self._discard_producer()
            # What broke it may break the next one, too.
            self._schedule.read_at = self._clock() + REBUILD_PAUSE

    def _watch_deliveries(self, *, has_news: bool) -> None:
        """Give up a producer whose records are not acknowledged in time."""
        now, timeout = self._clock(), self._settings.delivery_timeout
        if has_news:
            self._delivered_at, self._is_kafka_away = now, False
        if now < self._watch_at:
            return
        self._watch_at = now + timeout / 20
        if not self.relay.overdue(now - timeout):
            return
        # What it reports to its end counts: none is delivered and failed, too.
        self._close_producer()
        overdue = self.relay.overdue(now - timeout)
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
        if self._queue.has_room and (settlement := self.relay.settlement()):
            self._queue.submit(settlement)

    def _take_settled(self, now: float) -> None:
        for settled in self._queue.settled():
            if (rest := self.relay.settled(settled, now=now)) is not None:
                self._queue.keep(rest)
        if (rest := self._queue.due_rest(now)) is not None:
            self._queue.submit(self.relay.remarked(rest))

    def _idle(self, now: float, *, is_leading: bool) -> float:
        """Seconds until the next mark or retry is due; an answer comes by itself."""
        relay, until = self.relay, now + self._settings.idle_interval
        if not is_leading or self._queue.is_reading:
            return until - now
        if relay.must_remark:
            until = until if relay.unsettled else min(until, self._schedule.read_at)
        else:
            until = min(until, relay.retry_at)
            if relay.queued and self._producer is None:
                until = min(until, self._rebuild_at)
            if relay.has_room(self._settings.mark_batch):
                until = min(until, self._read_at)
        return max(0.0, until - self._clock())

    def _discard_producer(self) -> None:
        """Give up on all that is queued, and build another producer next time."""
        self._close_producer()
        self.relay.restart()

    def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.close()
            if self._is_pipelined:
                # What it had sent may reach the log a moment later.
                self._rebuild_at = self._clock() + REBUILD_PAUSE
