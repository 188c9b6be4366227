"""
The client's end of the way to Kafka's transactions: the port, with faults.

It does what `kafka/transactions.py` does: a batch, its ledger and the leader's
credential, and after any doubt nothing more until it is opened anew. Requests
reach the broker late or never, whatever becomes of their client; what a client
learns and what the broker did are two different things.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from django_outbox.exceptions import (
    DeliveryFailed,
    KafkaUnavailable,
    ProducerBroken,
    RecordPoisoned,
)
from django_outbox.message.record import Record
from django_outbox.relay.ledger.ports import Fault, Ledger

from .timing import DELIVERY_TIMEOUT

if TYPE_CHECKING:
    from .ledger_process import LedgerProcess

Answer = TypeVar("Answer")


class SimulatedTransactions:
    """One shard's transactional producer in one process."""

    def __init__(self, process: LedgerProcess) -> None:
        self._process = process
        self._world = process.world
        self._id = self.id_of(0)
        self._epoch: int | None = None
        self._is_known_member = False
        self._serial = 0
        """Counts transactions: what is late for one does not join the next."""
        self.on_commit: Callable[[], object] = lambda: None
        """Called when the broker has taken a commit."""

    # The port.

    def open(self) -> Ledger | None:
        self.close()
        try:
            epoch = self._call("init", self._initialise)
            ledger = self._read()
        except ProducerBroken as error:
            raise KafkaUnavailable(str(error)) from error
        self._epoch = epoch
        self._world.count("opened")
        return ledger

    def others(self) -> Sequence[Ledger]:
        return ()

    def read(self) -> Ledger | None:
        return self._read()

    def send(
        self,
        records: Sequence[Record],
        leader_id: str,
        ledger: Ledger,
        *,
        patience: float,
        may_commit: Callable[[], bool],
    ) -> Sequence[Fault] | None:
        world = self._world
        if self._epoch is None:
            raise ProducerBroken("not open", code="_STATE")
        if world.dice.random() < world.weather.producer_broken:
            self.break_down()
            raise ProducerBroken("fatal", code="_FATAL")
        world.promises.on_transaction(self._process, records)
        if faults := self._check(records):
            return faults
        epoch, serial = self._epoch, self._serial
        try:
            faults = self._call(
                "produce",
                lambda: self._produce(epoch, serial, records, ledger, leader_id),
                timeout=patience,
            )
        except _Unanswered:
            self._end(epoch, is_commit=False)
            late = DeliveryFailed("purged", code="_PURGE_INFLIGHT")
            return [Fault(record, late) for record in records]
        is_member = self._is_known_member or self._is_member()
        if faults or not is_member or not may_commit():
            self._end(epoch, is_commit=False)
            return faults
        world.promises.on_act(self._process, leader_id, "commits")
        self._end(epoch, is_commit=True)
        # A client that opens later fences this one, also if the group has not noticed.
        self._is_known_member = True
        return None

    def serve(self) -> None: ...

    def close(self) -> None:
        self._epoch = None
        self._is_known_member = False

    # What faults do.

    def break_down(self) -> None:
        """Meet a fatal error."""
        self._world.count("producer broken")
        self._epoch = None

    def freeze(self) -> None:
        """Stop with the process; what is on the wire goes on."""

    def die(self) -> None:
        """End with the process; what is on the wire goes on."""

    # The ledger of each shard.

    @staticmethod
    def id_of(shard: int, shards: int = 1) -> str:
        """Name the producer of a shard, of so many."""
        return f"shard {shard} of {shards}"

    def _read(self, shard: int = 0) -> Ledger | None:
        ledgers = self._world.ledgers
        return self._call("read the ledger", lambda: (ledgers.get(shard),))[0]

    def _write(self, ledger: Ledger) -> None:
        self._world.ledgers[0] = ledger

    # The parts of a transaction.

    def _check(self, records: Sequence[Record]) -> list[Fault]:
        """Find records whose topic is not there."""
        unknown = RecordPoisoned("no topic", code="UNKNOWN_TOPIC_OR_PART")
        faults = [Fault(r, unknown) for r in records if self._poison(r) == "topic"]
        for _ in faults:
            self._world.count("poison refused")
        return faults

    def _poison(self, record: Record) -> str:
        if self._world.is_cured:
            return ""
        return self._world.table.committed[record.message_id].poison

    def _initialise(self) -> int:
        """Be the broker: fence whoever was here before."""
        term = self._process.term
        self._world.promises.on_open(term.leader_id if term else None)
        return self._world.transactor.initialise(self._id)

    def _produce(
        self,
        epoch: int,
        serial: int,
        records: Sequence[Record],
        ledger: Ledger,
        leader_id: str,
    ) -> list[Fault]:
        """Be the broker: take the writes, and say what is not taken."""
        world = self._world
        if serial != self._serial:
            return []
        add = partial(world.transactor.add, self._id, epoch)
        add(lambda: world.promises.on_commit(self._process, leader_id))
        faults: list[Fault] = []
        if any(self._poison(record) == "size" for record in records):
            world.count("poison refused")
            is_alone = len(records) == 1
            error = RecordPoisoned("size", code="MSG_SIZE", is_certain=is_alone)
            return [Fault(record, error) for record in records]
        for record in records:
            luck = world.dice.random()
            if luck < world.weather.request_refused / 4:
                world.count("request refused")
                refused = DeliveryFailed("try again", code="NOT_ENOUGH_REPLICAS")
                faults.append(Fault(record, refused))
            elif luck < world.weather.ack_without_offset / 2:
                world.count("ack without offset")
                unplaced = DeliveryFailed("no offset", code="NO_OFFSET")
                faults.append(Fault(record, unplaced))
            else:
                add(partial(self._show, record))
        add(partial(self._write, ledger))
        return faults

    def _show(self, record: Record) -> None:
        if self._world.is_tracing:
            self._world.trace("reader", f"sees {record.id} of {record.key}")
        self._world.promises.on_shown(record)

    def _is_member(self) -> bool:
        """Show the credential to the group's coordinator."""
        fencing_token = self._process.membership.fencing_tokens.get(self._process.shard)
        if fencing_token is None:
            return False
        knows = self._world.group.coordinator.knows
        is_known = self._call("send offsets", lambda: knows(*fencing_token))
        if not is_known:
            self._world.count("credential refused")
        return is_known

    def _end(self, epoch: int, *, is_commit: bool) -> None:
        # What is under way for this one does not join the next: of whatever timed
        # out, the client's next epoch is told.
        self._serial += 1
        if is_commit:
            self._call("commit", lambda: self._commit(epoch))
        else:
            end = self._world.transactor.end
            self._call("abort", lambda: end(self._id, epoch, is_commit=False) or True)

    def _commit(self, epoch: int) -> bool:
        """Be the broker."""
        self._world.transactor.end(self._id, epoch, is_commit=True)
        self.on_commit()
        return True

    # The network.

    def _call(
        self,
        name: str,
        action: Callable[[], Answer],
        *,
        timeout: float = DELIVERY_TIMEOUT,
    ) -> Answer:
        """
        Send a request and wait for its answer.

        Raises:
            ProducerBroken: the broker says so, or nothing in time.
        """
        world, time = self._world, self._world.time
        gives_up_at = time() + timeout
        there, back = self._latency(), self._latency()
        request = _Request(self._process, name, action, gives_up_at)
        request.is_lost = self._happens("request lost", world.weather.request_lost)
        request.is_unanswered = self._happens("ack lost", world.weather.ack_lost)
        world.in_transit += 1
        time.after(there, lambda: request.arrive(back))
        self._process.sleep(min(there + back, timeout))
        while not request.answers and (left := gives_up_at - time()) > 0:
            self._process.sleep(min(left, 0.02))
        if not request.answers:
            world.trace(self._process.name, f"{name} is not answered")
            world.count(f"{name} unanswered")
            raise _Unanswered(f"{name}: no answer", code="_TIMED_OUT")
        answer = request.answers[0]
        if isinstance(answer, ProducerBroken):
            world.count("fenced")
            raise answer
        return answer

    def _happens(self, kind: str, probability: float) -> bool:
        if self._world.dice.random() >= probability:
            return False
        self._world.count(kind)
        return True

    def _latency(self) -> float:
        world = self._world
        if self._happens("request slow", world.weather.request_slow):
            return world.dice.uniform(0.0, 2 * DELIVERY_TIMEOUT)
        return world.dice.uniform(0.0005, world.plan.latency)


class _Request:
    """One request on its way to the broker, whatever becomes of its client."""

    def __init__(
        self,
        process: LedgerProcess,
        name: str,
        action: Callable[[], object],
        gives_up_at: float,
    ) -> None:
        self.answers: list[Any] = []
        self.is_lost = False
        self.is_unanswered = False
        self._process = process
        self._name = name
        self._action = action
        self._gives_up_at = gives_up_at
        self._is_held = process.world.dice.random() < 0.5
        """It is in the client's buffers yet, when that freezes or dies."""

    def arrive(self, back: float) -> None:
        process, world = self._process, self._process.world
        time, is_cut = world.time, process.node.is_cut_from("broker")
        if process.is_frozen and self._is_held:
            wait = process.thaw_at - time()
        elif is_cut and time() < self._gives_up_at:
            wait = 0.02
        else:
            world.in_transit -= 1
            if not (self.is_lost or is_cut or (process.is_dead and self._is_held)):
                self._take_effect(back)
            return
        time.after(wait, lambda: self.arrive(back))

    def _take_effect(self, back: float) -> None:
        process, world = self._process, self._process.world
        try:
            answer = self._action()
        except ProducerBroken as error:
            answer = error
        if world.is_tracing:
            world.trace(process.name, f"{self._name} -> {_short(answer)}")
        if not self.is_unanswered:
            world.time.after(back, lambda: self.answers.append(answer))


class _Unanswered(ProducerBroken):
    """Nobody has answered in time."""


def _short(answer: object) -> object:
    """Show ledgers and faults by their ids."""
    match answer:
        case (Ledger() as ledger,):
            return [record.id for record in ledger.records]
        case list():
            return [f"{fault.record.id}: {fault.error.code}" for fault in answer]
    return answer
