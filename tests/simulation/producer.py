"""
The client's end of the way to Kafka: a port `Producer` that meets faults.

It behaves as librdkafka's idempotent producer: each record is reported once;
what is given up by a living client reaches the log, if at all, only before
anything newer of the same key; what a frozen or killed process had sent may
still arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from django_outbox.exceptions import DeliveryFailed, ProducerBroken, RecordPoisoned
from django_outbox.message.record import OrderingKey, Record
from django_outbox.relay.batch import Accepted, Batch, Fault
from django_outbox.relay.ports import Outcome

from .broker import Request
from .timing import DELIVERY_TIMEOUT, LINGER

if TYPE_CHECKING:
    from .process import Process

LATE: Final = 0.5
"""Probability that a poll does not serve all reports."""


class SimulatedProducer:
    """One client, from its first record to its end."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.serial = process.world.broker.next_serial()
        self._world = process.world
        self.delivered = 0
        self.proven_topics: set[str] = set()
        """None: each key has a partition of its own here."""
        self._waiting: dict[Request, Batch] = {}
        self._ready: list[tuple[Request, DeliveryFailed | None]] = []
        self._faults: dict[Batch, list[Fault]] = {}
        """Of each batch without an outcome."""
        self._fault: ProducerBroken | None = None
        self._is_pipelined = process.world.plan.is_pipelined
        self._last: dict[OrderingKey, Request] = {}

    # The port.

    def produce(self, batch: Batch, leader_id: str) -> Accepted:
        world, weather = self._world, self._world.weather
        if not batch.is_apart:
            world.promises.on_pipelined(self.process, batch.records)
        world.promises.check_paused(self.process, batch.records)
        for count, record in enumerate(batch.records):
            world.promises.on_act(self.process, leader_id, f"produces {record.id}")
            luck = world.dice.random()
            if luck < weather.queue_full:
                world.count("queue full")
                return Accepted(count)
            if luck < weather.queue_full + weather.producer_broken:
                self.break_down()
            if self._fault is not None:
                return Accepted(count, self._fault)
            self._send(record, leader_id, batch)
        return Accepted(len(batch.records))

    def _send(self, record: Record, leader_id: str, batch: Batch) -> None:
        world = self._world
        world.promises.on_repeat(self.process, record)
        world.promises.on_produce(self.process, record)
        request = Request(
            record=record,
            leader_id=leader_id,
            producer=self,
            serial=world.broker.next_serial(),
            sent_at=world.time(),
            is_alone=batch.is_apart,
        )
        if self._is_pipelined and not batch.is_apart:
            request.follows = self._last.get(record.ordering_key)
            request.is_ordered = True
            self._last[record.ordering_key] = request
        if world.is_tracing:
            world.trace(self.process.name, f"produces {record.id} of {record.key}")
        self._waiting[request] = batch
        self._faults.setdefault(batch, [])
        if not request.is_ordered:
            world.time.after(DELIVERY_TIMEOUT, lambda: self._expire(request))
        world.broker.send(request)

    def poll(self, timeout: float) -> Sequence[Outcome]:
        count = len(self._ready)
        if self._world.dice.random() < LATE:
            # The others come a moment later, and may find the client closed.
            count = self._world.dice.randint(0, count)
        ready, self._ready = self._ready[:count], self._ready[count:]
        for request, error in ready:
            self._report(request, error)
        return self._ended()

    def purge(self) -> Sequence[Outcome]:
        abandoned = DeliveryFailed("purged", code="_PURGE_QUEUE")
        self._give_up(self._waiting)
        for request, error in self._ready:
            self._report(request, error)
        for request in list(self._waiting):
            self._report(request, abandoned)
        self._ready.clear()
        return self._ended()

    def close(self) -> None:
        self._give_up(self._waiting)
        self._waiting.clear()
        self._ready.clear()

    # What the broker and the faults do.

    def under_way(self) -> set[int]:
        """Return the ids of all that is not reported yet."""
        return {request.record.id for request in self._waiting}

    def batch_of(self, request: Request) -> list[Request]:
        """Return who shares a batch with this request: sent in the same moment."""
        if request.is_alone:
            return []
        return [
            other
            for other in self._waiting
            if other.sent_at == request.sent_at
            and not other.is_alone
            and other.record.topic == request.record.topic
        ]

    def on_answer(self, request: Request, error: DeliveryFailed | None) -> None:
        """Note an acknowledgement, or why there is none, for the next poll."""
        is_awaited = request in self._waiting and not request.is_reported
        if not is_awaited or self.process.is_dead:
            return
        neighbours = self.batch_of(request) if error and request.is_ordered else ()
        self._note(request, error)
        if error is None or not request.is_ordered:
            return
        # Nothing goes out behind a failure, and who shares its batch fails with it.
        for other in neighbours:
            if not other.is_reported and isinstance(error, RecordPoisoned):
                self._note(other, error)
        self.break_down()

    def _note(self, request: Request, error: DeliveryFailed | None) -> None:
        request.is_reported = True
        self._ready.append((request, error))
        self.process.dispatch.wake()

    def break_down(self) -> None:
        """Meet a fatal error: nothing goes out any more."""
        self._world.count("producer broken")
        self._fault = ProducerBroken("sequence lost", code="_FATAL")
        self._give_up(self._waiting)
        for request in self._waiting:
            if not request.is_reported and not self.process.is_dead:
                self._note(request, self._fault)

    def freeze(self) -> None:
        """Stop with the process; what is on the wire goes on."""
        for request in self._waiting:
            request.is_stale = True
            request.is_held |= self._world.dice.random() < 0.5

    def die(self) -> None:
        """End with the process; what was not on the wire yet is lost."""
        for request in self._waiting:
            request.is_stale = True
            if request.is_held or self._world.dice.random() < 0.5:
                request.lands_by = self._world.time()

    def _expire(self, request: Request) -> None:
        """Give a request up when its time is over."""
        process = self.process
        if request not in self._waiting or request.is_reported:
            return
        if process.is_frozen:
            wait = process.thaw_at - self._world.time()
            self._world.time.after(wait, lambda: self._expire(request))
            return
        self._give_up([request])
        self.on_answer(request, DeliveryFailed("timed out", code="_MSG_TIMED_OUT"))

    def _give_up(self, requests: Iterable[Request]) -> None:
        """Close the connection; what a frozen process had sent is out of reach."""
        for request in requests:
            if not request.is_stale:
                request.lands_by = self._world.time() + LINGER

    def _report(self, request: Request, error: DeliveryFailed | None) -> None:
        batch = self._waiting.pop(request)
        request.is_failed = error is not None
        if error is not None:
            self._faults[batch].append(Fault(request.record, error))
            return
        self.delivered += 1
        if batch.proves_keys:
            batch.proven.append(request.record.ordering_key)
        self._world.promises.on_delivered(self.process, request.record)

    def _ended(self) -> Sequence[Outcome]:
        """Take out the batches of which each record has a report."""
        waiting = set(self._waiting.values())
        ended = [batch for batch in self._faults if batch not in waiting]
        return [(batch, self._faults.pop(batch)) for batch in ended]
