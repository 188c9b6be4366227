"""
Kafka: the log of each key, and the way of a record to it and back.

A request travels, is appended or not, and its acknowledgement travels back;
each step may fail. What the client of a request learns, and whether the record
is in the log, are two different things, and the promises are about the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from django_outbox.exceptions import DeliveryFailed, RecordPoisoned
from django_outbox.message.record import OrderingKey, Record

from .timing import DELIVERY_TIMEOUT

if TYPE_CHECKING:
    from .producer import SimulatedProducer
    from .world import World


@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    """One try to append one record, and what became of it."""

    record: Record
    leader_id: str
    producer: SimulatedProducer
    serial: int
    """Its place among all requests of the history."""
    sent_at: float
    is_alone: bool
    """It is a batch of its own."""
    is_held: bool = False
    """It is in the client's buffers and not on the wire yet."""
    is_stale: bool = False
    """Its process froze or died before it was appended."""
    lands_by: float = inf
    """Its connection is closed and delivers nothing later than this."""
    is_reported: bool = False
    """The client has told the relay an outcome."""
    is_failed: bool = False
    """... and it was a failure."""
    is_ordered: bool = False
    """The broker appends it only behind the one that it follows."""
    follows: Request | None = None
    """The one before it of the same client and key."""
    is_decided: bool = False
    is_appended: bool = False
    is_answered: bool = False
    """The client has the broker's answer."""
    is_silent: bool = False
    """The client never hears of it, nor of those that follow."""


class Broker:
    """All partitions, as if each key had its own."""

    def __init__(self, world: World) -> None:
        self.log: dict[OrderingKey, list[Request]] = {}
        self.in_transit = 0
        """Requests on their way."""
        self._world = world
        self._serials = 0
        self._newest: dict[tuple[int, OrderingKey], int] = {}

    def next_serial(self) -> int:
        self._serials += 1
        return self._serials

    def send(self, request: Request) -> None:
        """Let a request travel."""
        self.in_transit += 1
        self._world.time.after(self._latency(), lambda: self._receive(request))

    def _receive(self, request: Request) -> None:
        producer, time = request.producer, self._world.time
        if request.is_held and producer.process.is_frozen:
            wait = producer.process.thaw_at - time()
            is_late = producer.process.thaw_at > request.sent_at + DELIVERY_TIMEOUT
            if is_late and self._world.dice.random() < 0.5:
                # Its time is over, and it is dropped unsent; otherwise it lay
                # in the socket, and goes out.
                request.lands_by = time()
        elif _is_cut(request) and time() < min(_tried_until(request), request.lands_by):
            # librdkafka tries on, as long as somebody waits for the outcome.
            wait = 0.02
        elif request.follows is not None and not request.follows.is_decided:
            # It has come in, and waits for its turn.
            time.after(0.0005, lambda: self._receive(request))
            return
        else:
            self.in_transit -= 1
            request.is_decided = True
            self._decide(request)
            return
        time.after(wait + self._latency(), lambda: self._receive(request))

    def _decide(self, request: Request) -> None:
        """Append the record, refuse it, or lose it."""
        world, weather = self._world, self._world.weather
        newest = self._newest.get(
            (request.producer.serial, request.record.ordering_key), 0
        )
        is_late = world.time() > request.lands_by or request.serial < newest
        if is_late or _is_cut(request):
            world.trace("broker", f"drops {_name(request)}")
            return
        if (former := request.follows) is not None:
            request.is_silent = former.is_silent
            if not former.is_appended:
                world.trace("broker", f"has a gap before {_name(request)}")
                return
        if error := self._poison(request):
            world.count("poison refused")
            self._answer(request, error)
            return
        luck = world.dice.random()
        if luck < weather.request_lost:
            world.count("request lost")
            world.trace("broker", f"never gets {_name(request)}")
            return
        luck -= weather.request_lost
        if luck < weather.request_refused:
            world.count("request refused")
            error = DeliveryFailed("try again", code="NOT_ENOUGH_REPLICAS")
            self._answer(request, error)
            return
        luck -= weather.request_refused
        # Only the first of a partition, which is still coming up.
        is_first = request.follows is None
        if luck < weather.ack_without_offset and is_first:
            # The next one of the partition is taken all the same.
            request.is_appended = True
            world.count("ack without offset")
            self._answer(request, DeliveryFailed("no offset", code="NO_OFFSET"))
            return
        luck -= weather.ack_without_offset
        self._append(request)
        if luck < weather.ack_lost:
            world.count("ack lost")
            request.is_silent = True
        if not request.is_silent:
            self._answer(request, None)

    def _append(self, request: Request) -> None:
        record = request.record
        request.is_appended = True
        # Within one producer's sequence nothing older is taken any more.
        self._newest[request.producer.serial, record.ordering_key] = request.serial
        request.producer.process.world.promises.on_landing(request)
        self._world.promises.on_append(request)
        self.log.setdefault(record.ordering_key, []).append(request)
        if self._world.is_tracing:
            stale = ", stale" if request.is_stale else ""
            self._world.trace("broker", f"appends {_name(request)}{stale}")

    def _poison(self, request: Request) -> DeliveryFailed | None:
        """Refuse a poison record, and with "size" its whole batch."""
        if self._world.is_cured:
            return None
        rows = self._world.table.committed
        match rows[request.record.id].poison:
            case "topic":
                return RecordPoisoned("no such topic", code="UNKNOWN_TOPIC")
            case "size":
                return _too_large(is_certain=request.is_alone)
        neighbours = request.producer.batch_of(request)
        if any(rows[r.record.id].poison == "size" for r in neighbours):
            return _too_large(is_certain=False)
        return None

    def _answer(self, request: Request, error: DeliveryFailed | None) -> None:
        time = self._world.time
        if not _is_cut(request):
            wait = self._world.dice.uniform(0.0005, self._world.plan.latency)
            time.after(wait, lambda: self._arrive(request, error))
        elif time() < _tried_until(request):
            # librdkafka repeats the request, and the broker its answer.
            time.after(0.02, lambda: self._answer(request, error))
        else:
            request.is_silent = True

    def _arrive(self, request: Request, error: DeliveryFailed | None) -> None:
        """Bring an answer; those of one partition come in their order."""
        former = request.follows
        if former is None or former.is_answered:
            request.is_answered = True
            request.producer.on_answer(request, error)
        elif former.is_silent:
            request.is_silent = True
        else:
            self._world.time.after(0.0005, lambda: self._arrive(request, error))

    def _latency(self) -> float:
        dice = self._world.dice
        if dice.random() < self._world.weather.request_slow:
            self._world.count("request slow")
            return dice.uniform(0.0, 2 * DELIVERY_TIMEOUT)
        return dice.uniform(0.0005, self._world.plan.latency)


def _tried_until(request: Request) -> float:
    """Until when a client repeats a request; one that keeps the order never ends."""
    is_endless = request.is_ordered and not request.producer.process.is_dead
    return inf if is_endless else request.sent_at + DELIVERY_TIMEOUT


def _is_cut(request: Request) -> bool:
    return request.producer.process.node.is_cut_from("broker")


def _too_large(*, is_certain: bool) -> RecordPoisoned:
    return RecordPoisoned("too large", code="MSG_SIZE_TOO_LARGE", is_certain=is_certain)


def _name(request: Request) -> str:
    record = request.record
    return f"{record.id} of {record.topic}/{record.key}"
