"""
The centre of a relay: check leadership, read pages, have them sent, settle.

`step()` is one round of the thread "dispatch". It never waits for the table: other
threads carry out requests and settlements, and the next round takes what has come
back. How records reach Kafka is the sender's part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ..message.record import Record
from .engine import Engine
from .lease import Lease
from .page_request import Page, PageRequest
from .polling import PollSchedule, report_sweep
from .ports import Term
from .settings import RelaySettings
from .work_queue import WorkQueue

REPORT_WAIT: Final = 0.001
"""Seconds to wait for reports while something is under way; the client's least."""

LOOK_INTERVAL: Final = 1.0
"""Seconds between two looks for what an operator has paused."""


class KafkaClient(Protocol):
    """A sender's way to Kafka."""

    def serve(self, *, is_hurried: bool) -> None:
        """Take what Kafka has answered; wait a moment for that unless hurried."""

    def stop(self, *, is_proven: bool) -> None:
        """Send no more; without a proven term, give up what is under way."""

    def close(self) -> None:
        """Drop the Kafka client; the last call."""


class Sender(KafkaClient, Protocol):
    """Brings what the engine hands out to Kafka, in one kind of delivery."""

    @property
    def remembers(self) -> bool:
        """Whether the next leader knows what is in the log and not purged."""

    def prepare(self, leader_id: str, now: float) -> bool:
        """Get ready under a leader id; return whether pages may be read."""

    def admit(self, page: Page, now: float) -> Sequence[Record] | None:
        """Return the records of a page that are to be sent; None: it had none."""

    def send(self, leader_id: str, now: float) -> bool:
        """Send some of what may go; return whether there may be more."""

    def wait(self, now: float) -> float:
        """Return when there is something to send again, in monotonic seconds."""


class Dispatcher:
    """
    Reads, sends and settles, one round at a time.

    Args:
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: RelaySettings,
        *,
        engine: Engine,
        sender: Sender,
        lease: Lease,
        queue: WorkQueue,
        schedule: PollSchedule,
        clock: Callable[[], float],
    ) -> None:
        self.engine = engine
        self._settings = settings
        self._sender = sender
        self._lease = lease
        self._queue = queue
        self._schedule = schedule
        self._clock = clock
        self._is_ready = False
        self._look_at = 0.0
        """When to look again for what is paused, in monotonic seconds."""

    def step(self) -> float:
        """Do one round; return for how many seconds there is nothing to do."""
        now, queue = self._clock(), self._queue
        self._take_settled(now)
        for page in queue.pages():
            # A page of a run that has ended is stale.
            if page.request.run == self.engine.run:
                self._take_page(page, now)
        term = self._follow(self._lease.term, now)
        has_more = term is not None and self._lead(term, now)
        idle = 0.0 if has_more else self._idle(now, is_leading=term is not None)
        is_hurried = queue.has_answers or queue.is_waiting or idle < REPORT_WAIT
        self._sender.serve(is_hurried=is_hurried)
        self._hand_over()
        if has_more or queue.has_answers:
            return 0.0
        if self.engine.under_way:
            # Unless something else is due, the wait for reports is the rest.
            return min(idle, REPORT_WAIT) if is_hurried else 0.0
        return idle

    def close(self) -> None:
        """Drop the Kafka client; the last call."""
        self._sender.close()

    # Leadership.

    def _follow(self, term: Term | None, now: float) -> Term | None:
        """A1: act only under a term that is proven and not being drained."""
        engine = self.engine
        is_proven = term is not None and term.remaining(now) > 0
        if term is None or not is_proven or self._queue.is_draining(term):
            self._stand_by(is_proven=is_proven)
            return None
        if term.leader_id == engine.leader_id:
            return term
        if engine.leader_id is not None:
            engine.stand_down()
            self._sender.stop(is_proven=True)
        if engine.unsettled or self._queue.is_reading:
            # What another term has left waits for the table.
            self._lease.resign_when_overdue(term, now)
            return None
        if (fresh := self._lease.unused(term, now)) is not None:
            self._begin(fresh.leader_id)
        return fresh

    def _begin(self, leader_id: str) -> None:
        self.engine.begin(leader_id)
        self._schedule.restart()

    def _stand_by(self, *, is_proven: bool) -> None:
        """Let what is in flight settle (a drain), or give it up (unproven)."""
        engine, queue = self.engine, self._queue
        if (leader_id := engine.leader_id) is not None:
            self._lease.stood_down(leader_id)
            engine.stand_down()
            engine.takeovers.stop()
        self._sender.stop(is_proven=is_proven)
        if not queue.is_waiting and (self._sender.remembers or not engine.in_flight):
            queue.tell_drained()

    def _lead(self, term: Term, now: float) -> bool:
        """Read and send; return whether there may be more to send."""
        self._lease.resign_when_overdue(term, now)
        self._is_ready = self._sender.prepare(term.leader_id, now)
        if not self._is_ready:
            return False
        if not self._reads_late or now >= self._look_at:
            self._read(term.leader_id, now)
        return self._sender.send(term.leader_id, now)

    def _refresh(self, leader_id: str, now: float) -> None:
        """A9: a new leader id, with nothing in flight and nothing claimed."""
        reason = self.engine.refresh_reason
        fresh = self._lease.refresh(leader_id, reason=reason, now=now)
        if fresh is not None:
            self._sender.stop(is_proven=True)
            self._begin(fresh.leader_id)

    # The table.

    def _read(self, leader_id: str, now: float) -> None:
        """A3 and B2: ask for what is due, one request at a time."""
        engine, schedule = self.engine, self._schedule
        if self._queue.is_reading or now < schedule.lost_until:
            return
        if engine.must_refresh:
            if not engine.unsettled or now >= self._look_at:
                # A new id helps only when the table can be reached. While something is
                # not settled, the answer only tells that an outage is over.
                self._look_at = now + LOOK_INTERVAL
                self._request(PageRequest(run=engine.run, leader_id=leader_id))
            return
        keys = engine.due(now)
        # A scan finds what is left of a key when it no longer passes it.
        is_due = (keys and not self._settings.by_scans) or now >= self._read_at
        limit = self._settings.page_rows if is_due and engine.has_room else 0
        looks = now >= self._look_at
        if not (keys or limit or looks):
            return
        if looks:
            self._look_at = now + LOOK_INTERVAL
        sweep = None
        schedule.requested(now)
        if limit and self._is_sweep(now):
            # Half of what may be in flight is for this cluster's own records.
            most = max(1, self._settings.max_in_flight / 2)
            if (room := most - engine.waiting.of_others) >= 1:
                limit, sweep = int(min(limit, room)), engine.sweep()
                sweep = sweep._replace(is_whole=self._settings.by_scans)
            elif self._settings.by_scans:
                limit = 0
        self._request(
            PageRequest(
                run=engine.run,
                leader_id=leader_id,
                keys=keys,
                limit=limit,
                looks_for_pauses=looks,
                sweep=sweep,
            )
        )

    def _is_sweep(self, now: float) -> bool:
        """Whether the next page is a sweep."""
        settings = self._settings
        is_due = not settings.marks_in_table and self._schedule.must_sweep(now)
        return settings.by_scans or is_due

    def _request(self, request: PageRequest) -> None:
        self.engine.begin_read()
        self._queue.read(request)

    @property
    def _reads_late(self) -> bool:
        """Whether no page is read before what waits is sent."""
        is_late = self._settings.blocks and not self._schedule.is_behind
        return is_late and bool(self.engine.waiting)

    @property
    def _read_at(self) -> float:
        """When to read the table: by the schedule, or at once after a commit."""
        if self._settings.by_scans:
            return self._schedule.sweep_at
        return 0.0 if self._queue.is_urgent else self._schedule.read_at

    def _take_page(self, page: Page, now: float) -> None:
        """Take a page that this run has requested."""
        engine, request, schedule = self.engine, page.request, self._schedule
        if page.retry_at is not None:
            schedule.lost_until = page.retry_at
        if page.pauses is not None:
            engine.pause(page.pauses)
        records = self._sender.admit(page, now)
        if records is None:
            return
        if page.retry_at is not None:
            if page.is_uncertain:
                # The table may hold marks of ours, or rows count as read.
                engine.refresh("the outcome of a mark or reset is unknown")
        elif engine.must_refresh:
            if not engine.unsettled:
                self._refresh(request.leader_id, now)
        else:
            engine.blocked.unblock(key for key, _ in request.keys)
            engine.found(records)
            self._plan(page, records, now)

    def _plan(self, page: Page, records: Sequence[Record], now: float) -> None:
        """Plan the next page by what this one has shown, and which of it is new."""
        request, found = page.request, len(page.records)
        if request.sweep is not None:
            has_more = self._settings.by_scans and bool(found)
            self._schedule.swept(found, now=now, has_more=has_more)
            self.engine.takeovers.found(request.leader_id, records, now)
            this_cluster = self._settings.this_cluster
            report_sweep(sum(r.cluster_id == this_cluster for r in page.records))
        elif request.limit:
            self._schedule.found(found, limit=request.limit)

    def _hand_over(self) -> None:
        if self._queue.has_room and (settlement := self.engine.settlement()):
            self._queue.submit(settlement)

    def _take_settled(self, now: float) -> None:
        for settled in self._queue.settled():
            if (rest := self.engine.settled(settled, now=now)) is not None:
                self._queue.keep(rest)
        if (rest := self._queue.due_rest(now)) is not None:
            self._queue.submit(rest)

    def _idle(self, now: float, *, is_leading: bool) -> float:
        """Seconds until the next page or retry is due; an answer comes by itself."""
        engine, until = self.engine, now + self._settings.idle_interval
        if not is_leading or not self._is_ready or self._queue.is_reading:
            return until - now
        if engine.must_refresh:
            next_at = until if engine.unsettled else 0.0
        elif self._reads_late:
            next_at = min(self._sender.wait(now), self._look_at)
        else:
            next_at = min(engine.blocked.retry_at, self._sender.wait(now))
            if engine.has_room:
                next_at = min(next_at, self._read_at)
        until = min(until, max(next_at, self._schedule.lost_until))
        return max(0.0, until - self._clock())
