"""
The threads of one run of a harvester, from the start to an orderly shutdown.

- *elect* polls the group and sends heartbeats;
- *dispatch*, *read* and *settle* move rows from the table to Kafka, once for each
  worker;
- *listen* learns of commits, with NOTIFY;
- *tend* reads the meter and releases staged records that are due;
- *notify* runs the application's receivers.

The order of the shutdown matters: the elector hands leadership over, for which the
others have to drain. Only then do they stop, the notifier last.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ..clock import boottime
from ..election.elector import NOT_IN_GROUP
from ..events import (
    Event,
    LeaderAcquired,
    LeaderRevoked,
    Observer,
    RecordParked,
    SeriesExpired,
    Stopped,
    TakeoverEnded,
    TakeoverStarted,
)
from ..exceptions import ConfigurationError, DatabaseError
from ..message.record import Backlog, ExpiredSeries, Failure
from ..observability.message_times import MessageTimes
from ..relay.meter import Totals
from ..relay.ports import Term
from ..relay.takeovers import TakeoverChange
from ..relay.work_queue import WorkQueue
from .components import Budget, Components, Election
from .notifier import Notifier
from .workers import RelayWorker

logger = logging.getLogger(__name__)

RECEIVER_GRACE = 1.0
"""Seconds after the drain time-out for receivers when a process stops."""

ELECTION_POLL_TIMEOUT = 0.05
"""Seconds for which the elector may wait for the broker in one round."""


class HarvesterThreads:
    """Runs the components of one harvester until it is stopped."""

    def __init__(
        self,
        *,
        name: str,
        notifier: Notifier,
        observers: Sequence[Observer],
        budget: Budget,
        logs_refusal: bool,
    ) -> None:
        self.name = name
        self.failure: BaseException | None = None
        """The first error that ended a thread, if any did."""
        self._notifier = notifier
        self._observers = observers
        self._budget = budget
        self._logs_refusal = logs_refusal
        self._workers: Sequence[RelayWorker] = ()
        self._election: Election | None = None
        self._stopping = threading.Event()
        self._abandoned = threading.Event()
        self._drain_ends_at = float("inf")
        self._threads: dict[str, threading.Thread] = {}

    def start(self, make: Callable[[threading.Event], Components | None]) -> None:
        """
        Start the threads and return at once.

        Args:
            make: builds the components, on the thread "elect". It may wait for a
                database until the event is set; then it returns None.
        """
        bodies = {"notify": self._notifier.run, "elect": lambda: self._lead(make)}
        self._start(bodies)

    def _start_components(self, components: Components) -> None:
        """Start the threads of the components (elect)."""
        self._components, self._workers = components, components.workers
        self._election = components.election
        bodies: dict[str, Callable[[], None]] = {"tend": self._tend}
        for worker in components.workers:
            bodies |= worker.bodies(self._abandoned, self._on_takeover)
        if components.listener is not None:
            bodies["listen"] = partial(
                components.listener.run, self._on_commit, self._abandoned
            )
        self._start(bodies)

    def _start(self, bodies: Mapping[str, Callable[[], None]]) -> None:
        threads = {
            concern: threading.Thread(
                target=self._guard,
                args=(concern, body),
                name=f"outbox-{concern}",
                daemon=True,
            )
            for concern, body in bodies.items()
        }
        self._threads |= threads
        for thread in threads.values():
            thread.start()

    def stop(self) -> None:
        """Begin an orderly shutdown and return at once."""
        if not self._stopping.is_set():
            self._drain_ends_at = boottime() + self._budget.drain
            self._stopping.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all threads have ended; False after `timeout` seconds."""
        elect = self._threads["elect"]
        elect.join(timeout)
        return not elect.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether all threads work."""
        return self.failure is None and self._threads["elect"].is_alive()

    @property
    def purged(self) -> int:
        """Records sent and purged since the start."""
        return self.counters.purged

    @property
    def counters(self) -> Totals:
        """What the relays of this run count."""
        return Totals([worker.counters for worker in self._workers])

    @property
    def times(self) -> MessageTimes | None:
        """
        From the creation of this cluster's rows to Kafka's acknowledgement.

        None: the database has not told yet which outbox it is.
        """
        if not self._workers:
            return None
        times = MessageTimes()
        for worker in self._workers:
            if worker.duty.is_own:
                times.include(worker.deliveries.times)
        return times

    @property
    def group_fault(self) -> str:
        """Why this process can neither lead nor stand by; empty: it can."""
        return NOT_IN_GROUP if self._election is None else self._election.fault

    @property
    def receiver_errors(self) -> int:
        """Signal receivers that raised or overran since the start."""
        return self._notifier.errors

    # Called by the components.

    def barrier(self, term: Term) -> None:
        """Settle the records in flight before leadership is given up (elect)."""
        now = boottime()
        timeout = min(
            self._budget.drain,
            self._drain_ends_at - now,
            self._longest_wait(term.shard, now),
        )
        if self.failure is not None:
            # The thread that ended was needed to settle them.
            timeout = 0.0
        # Meanwhile nobody proves the others that are given up next.
        for other in self._components.terms(now):
            is_next = other.shard in self._components.election.leaving
            if is_next or self._stopping.is_set():
                self._begin_drain(other)
        if not self._drain(self._begin_drain(term), now + timeout):
            logger.warning(
                "Not all records were settled within %.1f s; the next leader will"
                " send the rest again",
                timeout,
                extra={"action": "drain_overran", "leader_id": term.leader_id},
            )

    def publish(self, event: Event) -> None:
        """Publish to observers, then receivers; wait for those of a revoke only."""
        for observer in self._observers:
            try:
                observer(event)
            except Exception:
                logger.exception("Observer raised on event %s", event.kind)
        if isinstance(event, LeaderRevoked):
            now = boottime()
            timeout = min(
                self._budget.revoke,
                self._drain_ends_at + RECEIVER_GRACE - now,
                self._longest_wait(event.shard, now),
            )
            self._notifier.put_and_wait(event, max(0.0, timeout))
            return
        self._notifier.put(event)
        if isinstance(event, LeaderAcquired):
            for worker in self._workers:
                worker.queue.wake()

    def parked(self, shard: int, leader_id: str, failure: Failure) -> None:
        """Publish that a record was moved to the parked table (settle)."""
        event = parked_event(self.name, leader_id, failure)
        self.publish(replace(event, shard=shard))

    def expired(self, leader_id: str, series: ExpiredSeries) -> None:
        """Publish that a series was parked or discarded (tend)."""
        self.publish(
            SeriesExpired(
                name=self.name,
                leader_id=leader_id,
                series=series.name,
                messages=series.messages,
                action=series.action,
            )
        )

    def _begin_drain(self, term: Term) -> list[WorkQueue]:
        """Have nothing more sent in a term; return what there is to be waited for."""
        workers = [w for w in self._workers if w.duty.leadership.shard == term.shard]
        queues = [worker.queue for worker in workers]
        for queue in queues:
            queue.begin_drain(term)
        return queues

    def _drain(self, queues: Sequence[WorkQueue], until: float) -> bool:
        """Wait until then (boottime) for these; return whether they are drained."""
        while True:
            now = boottime()
            leases = [now + t.remaining(now) for t in self._components.terms(now)]
            next_at = min([until, *leases])
            is_drained = all(q.wait_drained(next_at - boottime()) for q in queues)
            if is_drained or boottime() >= until:
                return is_drained
            # Another may lead from here on: what runs on the leader has to stop.
            self._components.election.outlast()

    def _longest_wait(self, shard: int, now: float) -> float:
        """
        Return for how long the elector may wait for one shard (elect).

        Meanwhile this process proves none of the other shards that it leads. When it
        stops, it gives them up too.
        """
        if self._stopping.is_set():
            return float("inf")
        others = [t for t in self._components.terms(now) if t.shard != shard]
        return min([t.remaining(now) / 2 for t in others], default=float("inf"))

    def _on_commit(self) -> None:
        """Have the table read at once: this cluster's rows, of each shard it leads."""
        # A process that does not lead reads as soon as it does.
        for worker in self._workers:
            if worker.duty.is_own and worker.duty.leadership.term is not None:
                worker.queue.read_now()

    def _on_takeover(self, change: TakeoverChange) -> None:
        """Publish that a takeover began or ended (dispatch)."""
        kind = TakeoverEnded if change.has_ended else TakeoverStarted
        if not change.has_ended:
            logger.warning(
                "Takeover: records of cluster %d are overdue; this cluster relays them",
                change.origin,
                extra={"action": "takeover", "origin": change.origin},
            )
        self.publish(
            kind(
                name=self.name,
                leader_id=change.leader_id,
                origin=change.origin,
                records=change.records,
            )
        )

    # The bodies of the threads.

    def _guard(self, concern: str, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            self.failure = self.failure or error
            if not isinstance(error, ConfigurationError):
                logger.exception("Thread %r failed", concern)
            elif self._logs_refusal:
                # The text is complete; a traceback would not help.
                logger.error("%s", error, extra={"action": "refuse"})  # noqa: TRY400
            self.stop()

    def _lead(self, make: Callable[[threading.Event], Components | None]) -> None:
        try:
            if components := make(self._stopping):
                self._start_components(components)
                self._elect(components.election)
        finally:
            self._end()

    def _elect(self, election: Election) -> None:
        try:
            while not self._stopping.is_set():
                election.step(ELECTION_POLL_TIMEOUT)
        finally:
            election.stop()

    def _end(self) -> None:
        """Stop the threads that the barrier needed, the notifier last."""
        self._abandoned.set()
        for worker in self._workers:
            worker.end()
        until = boottime() + self._budget.revoke
        for concern, thread in self._threads.items():
            # One that could not be started cannot be joined.
            if concern not in {"notify", "elect"} and thread.is_alive():
                # One that waits for a silent server ends by that wait's time-out.
                thread.join(max(0.0, until - boottime()))
        self.publish(Stopped(name=self.name))
        self._notifier.stop()
        self._threads["notify"].join(self._budget.revoke)

    def _tend(self) -> None:
        meters, releaser = self._components.meters, self._components.releaser
        try:
            wait = 0.0
            while not self._abandoned.wait(wait):
                if not meters[0].wait(boottime()):
                    self._read_meters()
                if not releaser.wait(boottime()):
                    self._release()
                wait = min(meters[0].wait(boottime()), releaser.wait(boottime()))
        finally:
            self._components.metered.close()
            releaser.close()

    def _release(self) -> None:
        """Release staged records that are due, if this process leads shard 0."""
        now = boottime()
        # Two processes could release messages of one key in another order.
        first = next((t for t in self._components.terms(now) if t.shard == 0), None)
        if first is None:
            self._components.releaser.skip(now)
        else:
            self._components.releaser.step(first.leader_id)

    def _read_meters(self) -> None:
        """Publish a reading for each shard that this process leads."""
        now = boottime()
        terms = {term.shard: term for term in self._components.terms(now)}
        try:
            backlog = self._read_table() if terms else None
        except DatabaseError:
            backlog = None
        for shard, meter in enumerate(self._components.meters):
            if backlog is None or shard not in terms:
                meter.skip(now)
                continue
            reading = meter.read(
                now,
                term=terms[shard],
                backlog=backlog,
                receiver_errors=self._notifier.errors,
            )
            self.publish(reading)

    def _read_table(self) -> Backlog:
        """Read how much waits, and whether it is still the same outbox."""
        backlog = self._components.metered.backlog()
        identity = self._components.metered.identity()
        self._components.learn(identity)
        return backlog


def parked_event(name: str, leader_id: str, failure: Failure) -> RecordParked:
    """Return the event of a record that the harvester of this name has parked."""
    record = failure.record
    return RecordParked(
        name=name,
        leader_id=leader_id,
        record_id=record.id,
        message_id=record.message_id,
        topic=record.topic,
        attempts=record.attempts + 1,
        error=failure.error,
    )
