"""One round of the marking side, against a table and a producer of the test's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from django_outbox.exceptions import (
    DatabaseBusy,
    DatabaseUnavailable,
    DeliveryFailed,
    ProducerBroken,
    ProducerQueueFull,
)
from django_outbox.message.record import (
    Failure,
    KeyToRead,
    OrderingKey,
    Record,
    Sweep,
)
from django_outbox.message.retry import RetryPolicy
from django_outbox.relay.availability import Availability
from django_outbox.relay.lease import Lease, Trust
from django_outbox.relay.mpr.dispatcher import REPORT_WAIT, TABLE_WAIT, Dispatcher
from django_outbox.relay.mpr.mark_request import MarkedPage, MarkRequest
from django_outbox.relay.mpr.marker import Marker
from django_outbox.relay.polling import SWEEP_INTERVAL
from django_outbox.relay.ports import Report
from django_outbox.relay.settings import DispatchSettings
from django_outbox.relay.settlement import Settlement
from django_outbox.relay.work_queue import WorkQueue
from tests.fakes.settling import settled
from tests.unit.samples import record


@dataclass(frozen=True)
class Term:
    leader_id: str = "id-1"
    acquired_at: float = 0.0
    trusted_until: float = 10.0

    def remaining(self, now: float) -> float:
        return self.trusted_until - now


class Leadership:
    def __init__(self) -> None:
        self.term: Term | None = Term()
        self.resigned = ""

    def refresh(self, leader_id: str, *, reason: str, now: float) -> Term | None:
        assert self.term is not None
        number = int(self.term.leader_id[3:]) + 1
        self.term = replace(self.term, leader_id=f"id-{number}")
        return self.term

    def resign(self, leader_id: str, *, reason: str) -> None:
        self.resigned = reason


class Table:
    """Rows and who marked them; `is_away` makes every call fail."""

    def __init__(self) -> None:
        self.rows: dict[int, Record] = {}
        self.marks: dict[int, str] = {}
        self.resets: list[OrderingKey] = []
        self.sweeps: list[Sweep] = []
        self.is_away = False
        self.is_locked = False

    def mark(
        self, leader_id: str, *, limit: int, sweep: Sweep | None = None
    ) -> list[Record]:
        self.ping()
        if sweep is not None:
            self.sweeps.append(sweep)
            return []
        mine = [i for i in sorted(self.rows) if self.marks.get(i) != leader_id][:limit]
        self.marks.update(dict.fromkeys(mine, leader_id))
        return [self.rows[i] for i in mine]

    def reset(self, leader_id: str, keys_to_read: Sequence[KeyToRead]) -> None:
        self.ping()
        ordering_keys = [key for key, _ in keys_to_read]
        self.resets += ordering_keys
        for i, row in self.rows.items():
            if row.ordering_key in ordering_keys and self.marks.get(i) == leader_id:
                del self.marks[i]

    def ping(self) -> None:
        if self.is_away:
            raise DatabaseUnavailable("away")
        if self.is_locked:
            raise DatabaseBusy("a lock")

    def purge(self, leader_id: str, records: Sequence[Record]) -> int:
        raise AssertionError("the marking side does not purge")

    def fail(self, leader_id: str, failures: Sequence[Failure]) -> int:
        raise AssertionError("the marking side notes no failure")

    park = fail

    def kept(self, leader_id: str, records: Sequence[Record]) -> set[int]:
        raise AssertionError("the marking side does not purge")

    def locked(self, records: Sequence[Record]) -> set[int]:
        raise AssertionError("the marking side does not ask for locks")


class Producer:
    """Keeps what was produced until the test acknowledges it."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.flying: list[tuple[Record, Report]] = []
        self.acknowledged: set[int] = set()
        """Ids that the next poll acknowledges."""
        self.acknowledged_late: set[int] = set()
        """Ids that are acknowledged after the last poll."""
        self.refuse: Exception | None = None
        self.waits: list[float] = []
        self.is_closed = False

    def produce(
        self, record: Record, leader_id: str, settled: Report, *, alone: bool = False
    ) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.sent.append(record.id)
        self.flying.append((record, settled))

    def report(self, error: DeliveryFailed | None = None) -> None:
        flying, self.flying = self.flying, []
        for one, report in flying:
            report(one, error)

    def poll(self, timeout: float) -> int:
        self.waits.append(timeout)
        return self._acknowledge(self.acknowledged)

    def _acknowledge(self, ids: set[int]) -> int:
        acknowledged = [(o, s) for o, s in self.flying if o.id in ids]
        self.flying = [(o, s) for o, s in self.flying if o.id not in ids]
        for one, report in acknowledged:
            report(one, None)
        return len(acknowledged)

    def purge(self) -> None:
        self._acknowledge(self.acknowledged_late)
        self.report(DeliveryFailed("given up", code="_PURGE_QUEUE"))

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Bench:
    """A dispatcher and all that it touches."""

    now: float = 1.0
    marks_in_memory: bool = False
    per_key: int = 1
    leadership: Leadership = field(default_factory=Leadership)
    table: Table = field(default_factory=Table)
    producers: list[Producer] = field(default_factory=list)
    submitted: list[Settlement] = field(default_factory=list)
    requests: list[MarkRequest] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        retry = RetryPolicy(backoff=1.0, backoff_max=8.0, attempts=0)
        self.marker = Marker(
            outbox=self.table,
            is_trusted=Trust(self.leadership, self.clock),
            clock=self.clock,
        )
        self.queue = WorkQueue[MarkRequest, MarkedPage](
            read=self.requests.append,
            settle=self.submitted.append,
            wake=lambda: self.wakes.append(self.now),
        )
        self.dispatcher = Dispatcher(
            DispatchSettings(
                page_bytes=500_000,
                max_in_flight=100,
                mark_batch=10,
                marks_in_memory=self.marks_in_memory,
                max_in_flight_per_key=self.per_key,
                delivery_timeout=5.0,
                busy_interval=0.01,
                idle_interval=0.1,
                retry=retry,
            ),
            lease=Lease(
                self.leadership,
                clock=self.clock,
                outages=(self.marker.outage, Availability()),
                deadline=5.0,
            ),
            make_producer=self.make_producer,
            queue=self.queue,
            clock=self.clock,
        )

    def clock(self) -> float:
        return self.now

    def make_producer(self) -> Producer:
        self.producers.append(Producer())
        return self.producers[-1]

    def stash(self, *rows: Record) -> None:
        self.table.rows.update({row.id: row for row in rows})

    def step(self, *, after: float = 0.2) -> None:
        """Do a round, and another one for each request that it makes."""
        self.now += after
        self.dispatcher.step()
        while self.requests:
            self.carry_out()
            self.dispatcher.step()

    def carry_out(self) -> None:
        self.queue.put_page(self.marker.carry_out(self.requests.pop()))

    def settle(self) -> None:
        """Carry out all settlements, as a table without faults would."""
        submitted = self.submitted.copy()
        self.submitted.clear()
        for settlement in submitted:
            for row in settlement.acknowledged:
                del self.table.rows[row.id]
            self.queue.put_settled(settled(settlement))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_rows_are_marked_produced_and_handed_over_when_acknowledged(
    bench: Bench,
) -> None:
    bench.stash(record(1, "a"), record(2, "a"), record(3, "b"))
    bench.step()
    assert [1, 3] == bench.producers[0].sent

    bench.producers[0].report()
    bench.step()
    (settlement,) = bench.submitted
    assert [1, 3] == [row.id for row in settlement.acknowledged]
    bench.settle()
    bench.step()

    assert [1, 3, 2] == bench.producers[0].sent


def test_nothing_is_done_without_a_term(bench: Bench) -> None:
    bench.leadership.term = None
    bench.stash(record(1))
    bench.step()

    assert {} == bench.table.marks
    assert [] == bench.producers


def test_a_term_that_ran_out_between_mark_and_produce_sends_nothing(
    bench: Bench,
) -> None:
    bench.stash(record(1))
    mark = bench.table.mark

    def slow_mark(leader_id: str, *, limit: int, **_: object) -> list[Record]:
        records = mark(leader_id, limit=limit)
        bench.now = 11.0
        return records

    bench.table.mark = slow_mark  # type: ignore[method-assign]
    bench.step()

    assert {1: "id-1"} == bench.table.marks
    assert [] == bench.producers


def test_an_expired_term_empties_the_producer(bench: Bench) -> None:
    bench.stash(record(1))
    bench.step()

    bench.step(after=20.0)

    assert bench.producers[0].is_closed
    assert 0 == bench.dispatcher.relay.in_flight


@pytest.mark.parametrize("marks_in_memory", [False, True])
def test_an_id_that_was_stood_down_from_is_not_led_again(
    marks_in_memory: bool,
) -> None:
    """The elector extends a lease that has ended a moment ago."""
    bench = Bench(marks_in_memory=marks_in_memory)
    bench.stash(*[record(number, "a") for number in range(1, 5)])
    bench.step()
    bench.leadership.term = Term(trusted_until=bench.now)
    bench.step()
    bench.stash(record(5, "a"))

    bench.leadership.term = Term(trusted_until=20.0)
    bench.step()

    assert bench.leadership.term.leader_id == "id-2"
    assert set(bench.table.marks.values()) == {"id-2"}
    assert [producer.sent for producer in bench.producers] == [[1], [1]]


def test_keys_whose_reset_found_the_lease_over_are_found_under_a_new_id(
    bench: Bench,
) -> None:
    bench.stash(record(1, "a"), record(2, "a"))
    bench.step()
    bench.producers[0].report(DeliveryFailed("no", code="_TIMED_OUT"))
    bench.dispatcher.step()
    bench.settle()
    bench.dispatcher.step()
    bench.now += 1.0
    bench.dispatcher.step()
    (request,) = bench.requests
    assert [("t", "a")] == [key for key, _ in request.keys]

    term = bench.leadership.term
    bench.leadership.term = Term(trusted_until=bench.now)
    bench.carry_out()
    bench.leadership.term = term
    bench.stash(record(3, "a"))
    bench.step()
    bench.step()

    assert bench.producers[-1].sent[1:] == [1]
    assert set(bench.table.marks.values()) == {"id-2"}


def test_a_drain_produces_no_more_and_ends_when_all_is_settled(bench: Bench) -> None:
    bench.stash(record(1, "a"), record(2, "a"))
    bench.step()
    assert bench.leadership.term is not None

    bench.queue.begin_drain(bench.leadership.term)
    bench.producers[0].report()
    bench.step()
    assert not bench.queue.is_drained
    bench.settle()
    bench.step()

    assert bench.queue.is_drained
    assert [1] == bench.producers[0].sent
    assert not bench.producers[0].is_closed


def test_a_drain_holds_when_the_leader_id_is_refreshed_meanwhile(bench: Bench) -> None:
    bench.step()
    assert bench.leadership.term is not None
    bench.queue.begin_drain(bench.leadership.term)
    bench.leadership.refresh("id-1", reason="a race", now=bench.now)
    bench.stash(record(1))

    bench.step()

    assert bench.queue.is_drained
    assert [] == bench.producers


def test_a_mark_of_unknown_outcome_leads_to_a_new_leader_id(bench: Bench) -> None:
    bench.stash(record(1, "a"), record(2, "b"))
    bench.step()
    bench.table.is_away = True
    bench.step()
    bench.table.is_away = False
    bench.producers[0].report()
    bench.step()
    bench.settle()
    bench.stash(record(3, "c"))

    bench.step(after=1.0)
    bench.step()

    assert bench.leadership.term is not None
    assert "id-2" == bench.leadership.term.leader_id
    assert {3: "id-2"} == {i: bench.table.marks[i] for i in bench.table.rows}


def test_an_absent_database_takes_no_new_leader_ids(bench: Bench) -> None:
    bench.step()
    bench.table.is_away = True

    for _ in range(10):
        bench.step()

    assert bench.leadership.term is not None
    assert "id-1" == bench.leadership.term.leader_id


def test_a_leader_without_database_resigns_after_its_deadline(bench: Bench) -> None:
    bench.leadership.term = Term(trusted_until=100.0)
    bench.step()
    bench.table.is_away = True
    bench.step(after=1.0)
    bench.step(after=4.9)
    assert "" == bench.leadership.resigned

    bench.step(after=0.2)

    assert "no database for 5.1 s" == bench.leadership.resigned


def test_a_leader_behind_a_lock_leads_on_under_the_same_id(bench: Bench) -> None:
    bench.leadership.term = Term(trusted_until=100.0)
    bench.stash(record(1, "a"))
    bench.step()
    bench.table.is_locked = True
    for _ in range(30):
        bench.step(after=1.0)
    bench.table.is_locked = False
    bench.producers[0].report()
    bench.step()
    bench.settle()
    bench.stash(record(2, "b"))
    bench.step(after=1.0)
    bench.step()

    assert "" == bench.leadership.resigned
    assert [1, 2] == bench.producers[0].sent
    assert {2: "id-1"} == {i: bench.table.marks[i] for i in bench.table.rows}


def test_an_outage_of_an_earlier_term_is_no_reason_to_resign(bench: Bench) -> None:
    bench.leadership.term = Term(trusted_until=100.0)
    bench.table.is_away = True
    bench.step()
    bench.leadership.term = None
    bench.step(after=30.0)

    bench.table.is_away = False
    bench.leadership.term = Term("id-2", acquired_at=31.0, trusted_until=100.0)
    bench.stash(record(1))
    bench.step()
    bench.step()

    assert "" == bench.leadership.resigned
    assert {1: "id-2"} == bench.table.marks


def test_a_failed_key_is_reset_after_its_backoff(bench: Bench) -> None:
    bench.stash(record(1, "a"), record(2, "b"))
    bench.step()
    bench.producers[0].report(DeliveryFailed("timed out", code="_MSG_TIMED_OUT"))
    bench.step()
    bench.settle()
    bench.step()
    assert [] == bench.table.resets

    bench.step(after=1.0)

    assert {("t", "a"), ("t", "b")} == set(bench.table.resets)
    assert [1, 2, 1, 2] == bench.producers[0].sent


def test_a_full_queue_is_tried_again_in_order(bench: Bench) -> None:
    bench.stash(record(1, "a"), record(2, "b"))
    producer = bench.make_producer()
    producer.refuse = ProducerQueueFull()
    bench.dispatcher._producer = producer
    bench.step()
    assert [] == producer.sent

    producer.refuse = None
    bench.step()

    assert [1, 2] == producer.sent


def test_a_broken_producer_is_replaced_under_a_new_leader_id(bench: Bench) -> None:
    bench.stash(record(1))
    bench.step()
    bench.producers[0].report(ProducerBroken("fatal", code="_FATAL"))
    bench.step()
    bench.step()
    bench.step()

    assert bench.producers[0].is_closed
    assert [1] == bench.producers[1].sent
    assert {1: "id-2"} == bench.table.marks


def test_behind_a_producer_that_breaks_nothing_more_is_produced(bench: Bench) -> None:
    bench.stash(*(record(n, f"key-{n}") for n in range(1, 4)))
    producer = bench.make_producer()
    made: list[int] = []

    def produce(one: Record, *_: object, **__: object) -> None:
        made.append(one.id)
        if one.id == 2:
            raise ProducerBroken("fenced", code="_FENCED")

    producer.produce = produce  # type: ignore[method-assign,assignment]
    bench.dispatcher._producer = producer
    bench.step()
    bench.step()

    assert made == [1, 2]
    assert bench.dispatcher.relay.in_flight == 1, "the first, which has gone"
    assert bench.dispatcher.relay.queued == 0


def test_no_second_request_is_made_while_one_is_out(bench: Bench) -> None:
    bench.dispatcher.step()
    bench.now += 1.0
    bench.dispatcher.step()

    assert 1 == len(bench.requests)


def test_marks_for_an_id_that_has_ended_are_not_produced(bench: Bench) -> None:
    bench.stash(record(1))
    bench.dispatcher.step()
    request = bench.requests.pop()
    page = bench.marker.carry_out(request)
    bench.leadership.term = Term(leader_id="id-9", acquired_at=2.0)

    bench.queue.put_page(page)
    bench.step()

    assert {1: "id-9"} == bench.table.marks
    assert [1] == bench.producers[0].sent


def test_a_request_that_comes_too_late_writes_nothing(bench: Bench) -> None:
    bench.stash(record(1))
    bench.dispatcher.step()
    bench.now = 11.0

    bench.carry_out()

    assert {} == bench.table.marks


def test_while_a_request_is_out_it_is_waited_for_and_not_a_report(bench: Bench) -> None:
    bench.stash(record(1))
    bench.step()
    (producer,) = bench.producers
    assert bench.dispatcher.step() == 0.0
    assert producer.waits[-1] == REPORT_WAIT

    bench.now += 0.2
    bench.dispatcher.step()
    assert len(bench.requests) == 1
    assert bench.dispatcher.step() == TABLE_WAIT
    assert producer.waits[-1] == 0


def test_a_drain_waits_for_a_request_that_is_out(bench: Bench) -> None:
    bench.dispatcher.step()
    assert bench.leadership.term is not None
    bench.queue.begin_drain(bench.leadership.term)
    bench.dispatcher.step()
    assert not bench.queue.is_drained

    bench.carry_out()
    bench.dispatcher.step()

    assert bench.queue.is_drained


def test_marks_in_memory_are_swept_but_for_what_is_in_hand() -> None:
    bench = Bench(marks_in_memory=True)
    bench.stash(record(1, key="a"), record(2, key="a"))
    bench.step()
    assert bench.table.sweeps == [(frozenset(), ())]

    bench.step(after=SWEEP_INTERVAL)

    assert bench.table.sweeps[1:] == [(frozenset({1, 2}), ())]


def test_a_sweep_passes_over_what_waits_for_a_retry() -> None:
    bench = Bench(marks_in_memory=True)
    bench.stash(record(1, key="a"), record(2, key="a"))
    bench.step()
    bench.producers[0].report(DeliveryFailed("no", code="NO"))
    bench.step(after=SWEEP_INTERVAL)

    assert bench.table.sweeps[-1] == ({1}, (("t", "a"),))


def test_marks_in_the_table_are_not_swept() -> None:
    bench = Bench()
    bench.step()
    bench.step(after=SWEEP_INTERVAL)

    assert bench.table.sweeps == []


# Nudges.


def test_a_commit_looks_at_once_whatever_the_pace_says(bench: Bench) -> None:
    bench.step()
    bench.stash(record(1, "a"))
    bench.step(after=0.0)
    assert bench.producers == []

    bench.queue.read_now()
    bench.step(after=0.0)

    assert [1] == bench.producers[0].sent


def test_a_commit_is_one_look_and_the_pace_goes_on(bench: Bench) -> None:
    bench.step()
    bench.queue.read_now()
    bench.step(after=0.0)
    bench.stash(record(1, "a"))

    bench.step(after=0.0)
    assert bench.producers == []
    bench.step()

    assert [1] == bench.producers[0].sent


def test_a_commit_while_a_request_is_out_makes_one_more(bench: Bench) -> None:
    bench.now += 0.2
    bench.dispatcher.step()
    request = bench.requests.pop()
    page = bench.marker.carry_out(request)

    bench.stash(record(1, "a"))
    bench.queue.read_now()
    bench.dispatcher.step()
    assert bench.requests == []
    bench.queue.put_page(page)
    bench.step(after=0.0)

    assert [1] == bench.producers[0].sent


def test_a_commit_is_not_used_up_by_a_sweep() -> None:
    bench = Bench(marks_in_memory=True)
    bench.step()
    bench.now += 2 * SWEEP_INTERVAL
    bench.dispatcher._schedule.read_at = bench.now + 1.0
    bench.stash(record(1, "a"))
    bench.queue.read_now()
    bench.step(after=0.0)

    assert len(bench.table.sweeps) == 2
    assert [1] == bench.producers[0].sent


def test_a_commit_ends_a_rest(bench: Bench) -> None:
    bench.step()
    bench.wakes.clear()

    bench.queue.read_now()

    assert bench.wakes == [bench.now]


def test_a_commit_during_a_drain_looks_at_nothing(bench: Bench) -> None:
    bench.step()
    assert bench.leadership.term is not None
    bench.queue.begin_drain(bench.leadership.term)
    bench.queue.read_now()

    assert bench.dispatcher.step() == pytest.approx(0.1)
    assert bench.requests == []


def test_a_commit_does_not_shorten_the_pause_after_an_error(bench: Bench) -> None:
    bench.table.is_away = True
    bench.step()
    bench.queue.read_now()

    assert bench.dispatcher.step() > 0.0
    assert bench.requests == []


def test_a_commit_that_finds_no_room_does_not_spin(bench: Bench) -> None:
    bench.stash(*(record(n, "a") for n in range(1, 200)))
    for _ in range(20):
        bench.step()
    assert not bench.dispatcher.relay.has_room(10)
    bench.producers[0].report()
    bench.dispatcher.step()
    bench.queue.read_now()

    assert bench.dispatcher.step() > 0.0
    assert bench.requests == []


@pytest.fixture
def pipelined() -> Bench:
    """Any number of records of a key may be in flight."""
    return Bench(marks_in_memory=True, per_key=0)


def last(bench: Bench) -> Producer:
    """The producer in use."""
    return bench.producers[-1]


def test_when_kafka_is_silent_all_is_sent_again_and_nothing_has_failed(
    pipelined: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    pipelined.leadership.term = Term(trusted_until=1000.0)
    pipelined.stash(record(1, "a"), record(2, "b"))
    pipelined.step()
    assert [1, 2] == last(pipelined).sent

    for _ in range(40):
        pipelined.step(after=0.3)

    assert len(pipelined.producers) > 2
    assert all(producer.is_closed for producer in pipelined.producers[:-1])
    assert [1, 2] == last(pipelined).sent
    assert pipelined.dispatcher.relay.failed == 0
    told = [line for line in caplog.messages if "has acknowledged nothing" in line]
    assert len(told) == 1


@pytest.mark.parametrize("comes_at_last", [False, True])
def test_only_what_is_late_has_failed_while_others_are_acknowledged(
    pipelined: Bench, comes_at_last: bool
) -> None:
    """It may be acknowledged after all, while its producer is being closed."""
    pipelined.leadership.term = Term(trusted_until=1000.0)
    pipelined.stash(record(1, "late"))
    pipelined.step()
    first = last(pipelined)
    if comes_at_last:
        first.acknowledged_late.add(1)

    for number in range(2, 22):
        pipelined.stash(record(number, f"k{number}"))
        pipelined.step(after=0.3)
        if first.is_closed:
            break
        first.acknowledged.add(number)
    pipelined.step(after=0.6)

    assert first.is_closed
    has_failed = not comes_at_last
    assert list(pipelined.dispatcher.relay.blocked) == [("t", "late")] * has_failed
    assert pipelined.dispatcher.relay.failed == has_failed
    assert 1 not in last(pipelined).sent
