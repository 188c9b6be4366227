"""Rounds of a dispatcher: leadership, the table and its outages, drains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_outbox.exceptions import DatabaseUnavailable, DeliveryFailed, ProducerBroken
from django_outbox.message.record import Record
from django_outbox.relay.dispatcher import REPORT_WAIT
from django_outbox.relay.settlement import Settlement
from tests.fakes.settling import settled

from .dispatcher_bench import Bench
from .leading import Term
from .samples import record

LATE = DeliveryFailed("timed out", code="_MSG_TIMED_OUT")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_rows_are_marked_sent_and_handed_over_when_acknowledged(bench: Bench) -> None:
    bench.stash(record(1, "a"), record(2, "a"), record(3, "b"))
    bench.step()
    assert bench.sent == [[1, 3]]

    bench.producer.ack()
    bench.step()
    (settlement,) = bench.submitted
    assert [row.id for row in settlement.acknowledged] == [1, 3]
    bench.settle()
    bench.step()

    assert bench.sent == [[1, 3, 2]]


# Leadership.


def test_nothing_is_done_without_a_term(bench: Bench) -> None:
    bench.leadership.term = None
    bench.stash(record(1))
    bench.step()

    assert bench.table.marks == {}
    assert bench.producers == []


def test_a_term_that_ran_out_between_page_and_batch_sends_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.leadership.term = Term(trusted_until=10.0)
    bench.stash(record(1))
    mark = bench.table.mark

    def slow_mark(leader_id: str, *, limit: int, sweep: None = None) -> list[Record]:
        records = mark(leader_id, limit=limit)
        bench.now = 11.0
        return records

    monkeypatch.setattr(bench.table, "mark", slow_mark)
    bench.step()

    assert bench.table.marks == {1: "id-1"}
    assert bench.producers == []


def test_an_expired_term_empties_the_producer(bench: Bench) -> None:
    bench.leadership.term = Term(trusted_until=10.0)
    bench.stash(record(1))
    bench.step()

    bench.step(after=20.0)

    assert bench.producer.is_closed
    assert bench.engine.in_flight == 0


@pytest.mark.parametrize("marks_in_table", [False, True])
def test_an_id_that_was_stood_down_from_is_not_led_again(
    marks_in_table: bool,
) -> None:
    """The elector extends a lease that has ended a moment ago."""
    bench = Bench(marks_in_table=marks_in_table, max_in_flight_per_key=1)
    bench.stash(*[record(number, "a") for number in range(1, 5)])
    bench.step()
    bench.leadership.term = Term(trusted_until=bench.now)
    bench.step()
    bench.stash(record(5, "a"))

    bench.leadership.term = Term(trusted_until=20.0)
    bench.step(after=1.0)

    assert bench.leadership.leader_id == "id-2"
    assert set(bench.table.marks.values()) == {"id-2"}
    assert bench.sent == [[1], [1]]


def test_another_leader_id_waits_until_the_former_ones_records_are_settled(
    bench: Bench,
) -> None:
    bench.stash(record(1))
    bench.step()
    bench.leadership.term = Term("id-7", acquired_at=2.0)
    bench.stash(record(2, "b"))
    bench.step()
    assert bench.table.marks == {1: "id-1"}

    bench.producer.ack()
    bench.step()
    bench.settle()
    bench.step()

    assert bench.table.marks == {1: "id-1", 2: "id-7"}
    assert bench.sent == [[1, 2]]


def test_pages_for_an_id_that_has_ended_are_not_sent(bench: Bench) -> None:
    bench.stash(record(1))
    bench.dispatcher.step()
    page = bench.reader.carry_out(bench.requests.pop())
    bench.leadership.term = Term(leader_id="id-9", acquired_at=2.0)

    bench.queue.put_page(page)
    bench.step()

    assert bench.table.marks == {1: "id-9"}
    assert bench.sent == [[1]]


def test_keys_whose_reset_found_the_lease_over_are_found_under_a_new_id(
    bench: Bench,
) -> None:
    bench.stash(record(1, "a"), record(2, "a"))
    bench.step()
    bench.producer.fail(LATE)
    bench.dispatcher.step()
    bench.settle()
    bench.dispatcher.step()
    bench.now += 1.0
    bench.dispatcher.step()
    (request,) = bench.requests
    assert [key for key, _ in request.keys] == [("t", "a")]

    term = bench.leadership.term
    bench.leadership.term = Term(trusted_until=bench.now)
    bench.carry_out()
    bench.leadership.term = term
    bench.stash(record(3, "a"))
    bench.step()
    bench.step()

    assert bench.sent == [[1, 1]]
    assert set(bench.table.marks.values()) == {"id-2"}


# Drains.


def test_a_drain_sends_no_more_and_ends_when_all_is_settled(bench: Bench) -> None:
    bench.stash(record(1, "a"), record(2, "a"))
    bench.step()
    assert bench.leadership.term is not None

    bench.queue.begin_drain(bench.leadership.term)
    bench.producer.ack()
    bench.step()
    assert not bench.queue.wait_drained(0)
    bench.settle()
    bench.step()

    assert bench.queue.wait_drained(0)
    assert bench.sent == [[1]]
    assert not bench.producer.is_closed


def test_a_drain_waits_for_a_row_that_the_table_keeps(bench: Bench) -> None:
    """The next leader would send its record again."""
    bench.stash(record(1))
    bench.step()
    assert bench.leadership.term is not None
    bench.queue.begin_drain(bench.leadership.term)
    bench.producer.ack()
    bench.step()
    (settlement,) = bench.submitted
    bench.submitted.clear()
    rest = Settlement(leader_id="id-1", acknowledged=settlement.acknowledged, tries=1)
    bench.queue.put_settled(replace(settled(settlement), acknowledged=[], rest=rest))
    bench.step()
    assert not bench.queue.wait_drained(0)

    assert bench.submitted == [rest]
    bench.settle()
    bench.step()
    assert bench.queue.wait_drained(0)


def test_a_drain_holds_when_the_leader_id_is_refreshed_meanwhile(bench: Bench) -> None:
    bench.step()
    assert bench.leadership.term is not None
    bench.queue.begin_drain(bench.leadership.term)
    bench.leadership.refresh("id-1", reason="a race", now=bench.now)
    bench.stash(record(1))

    bench.step()

    assert bench.queue.wait_drained(0)
    assert bench.producers == []


def test_a_drain_waits_for_a_request_that_is_out(bench: Bench) -> None:
    bench.dispatcher.step()
    assert bench.leadership.term is not None
    bench.queue.begin_drain(bench.leadership.term)
    bench.dispatcher.step()
    assert not bench.queue.wait_drained(0)

    bench.carry_out()
    bench.dispatcher.step()

    assert bench.queue.wait_drained(0)


# The table.


def test_a_page_of_unknown_outcome_leads_to_a_new_leader_id(bench: Bench) -> None:
    bench.stash(record(1, "a"), record(2, "b"))
    bench.step()
    bench.table.is_away = True
    bench.step()
    bench.table.is_away = False
    bench.producer.ack()
    bench.step()
    bench.settle()
    bench.stash(record(3, "c"))

    bench.step(after=1.0)
    bench.step()

    assert bench.leadership.reasons == ["the outcome of a mark or reset is unknown"]
    assert {i: bench.table.marks[i] for i in bench.table.rows} == {3: "id-2"}


def test_an_absent_database_takes_no_new_leader_ids(bench: Bench) -> None:
    bench.step()
    bench.table.is_away = True

    for _ in range(10):
        bench.step()

    assert bench.leadership.leader_id == "id-1"


def test_a_leader_without_database_resigns_after_its_deadline(bench: Bench) -> None:
    bench.step()
    bench.table.is_away = True
    bench.step(after=1.0)
    bench.step(after=4.9)
    assert bench.leadership.resigned == ""

    bench.step(after=0.2)

    assert bench.leadership.resigned == "no database for 5.1 s"


def test_a_leader_behind_a_lock_leads_on_under_the_same_id(bench: Bench) -> None:
    bench.stash(record(1, "a"))
    bench.step()
    bench.table.is_locked = True
    for _ in range(30):
        bench.step(after=1.0)
    bench.table.is_locked = False
    bench.producer.ack()
    bench.step()
    bench.settle()
    bench.stash(record(2, "b"))
    bench.step(after=1.0)
    bench.step()

    assert bench.leadership.resigned == ""
    assert bench.sent == [[1, 2]]
    assert {i: bench.table.marks[i] for i in bench.table.rows} == {2: "id-1"}


def test_an_outage_is_over_with_an_answer_while_a_row_is_locked(bench: Bench) -> None:
    """A migration ends the connection, and then holds a lock for long."""
    bench.stash(record(1, "a"))
    bench.step()
    bench.producer.ack()
    bench.step()
    bench.table.is_away = True
    bench.step()
    bench.table.is_away = False
    for _ in range(30):
        bench.step(after=1.0)
    assert bench.leadership.resigned == ""
    assert bench.leadership.reasons == []

    bench.settle()
    bench.step(after=1.0)
    bench.step()

    assert bench.leadership.reasons == ["the outcome of a mark or reset is unknown"]


def test_an_outage_of_an_earlier_term_is_no_reason_to_resign(bench: Bench) -> None:
    bench.table.is_away = True
    bench.step()
    bench.leadership.term = None
    bench.step(after=30.0)

    bench.table.is_away = False
    bench.leadership.term = Term("id-2", acquired_at=31.0)
    bench.stash(record(1))
    bench.step()
    bench.step()

    assert bench.leadership.resigned == ""
    assert bench.table.marks == {1: "id-2"}


def test_an_outage_that_goes_on_in_the_next_term_is_a_reason_to_resign(
    bench: Bench,
) -> None:
    """What the former term has sent cannot leave the table, so no other begins."""
    bench.stash(record(1))
    bench.step()
    bench.producer.ack()
    bench.step()
    bench.settling.lost(DatabaseUnavailable("away"), bench.now)
    bench.leadership.term = Term("id-2", acquired_at=bench.now)
    bench.step(after=4.0)
    assert bench.leadership.resigned == ""

    bench.step(after=2.0)

    assert bench.leadership.resigned == "no database for 6.0 s"


def test_a_failed_key_is_reset_after_its_backoff(bench: Bench) -> None:
    bench.stash(record(1, "a"), record(2, "b"))
    bench.step()
    bench.producer.fail(LATE)
    bench.step()
    bench.settle()
    bench.step()
    assert bench.table.resets == []

    bench.step(after=1.0)

    assert set(bench.table.resets) == {("t", "a"), ("t", "b")}
    assert bench.sent == [[1, 2, 1, 2]]


def test_a_broken_producer_is_replaced_under_the_same_leader_id(bench: Bench) -> None:
    bench.stash(record(1))
    bench.step()
    bench.producer.fail(ProducerBroken("fatal", code="_FATAL"))
    bench.step()
    bench.step(after=0.5)

    assert bench.producers[0].is_closed
    assert bench.sent == [[1], [1]]
    assert bench.table.marks == {1: "id-1"}


def test_no_second_request_is_made_while_one_is_out(bench: Bench) -> None:
    bench.dispatcher.step()
    bench.now += 1.0
    bench.dispatcher.step()

    assert len(bench.requests) == 1


def test_a_row_that_the_table_keeps_is_settled_later_apart(bench: Bench) -> None:
    bench.stash(record(1), record(2, "b"))
    bench.step()
    bench.producer.ack()
    bench.step()
    (settlement,) = bench.submitted
    bench.submitted.clear()
    stuck, gone = settlement.acknowledged
    rest = Settlement(
        leader_id="id-1", acknowledged=[stuck], tries=1, retry_at=bench.now + 1.0
    )
    outcome = replace(settled(settlement, purged=1), acknowledged=[gone], rest=rest)
    bench.queue.put_settled(outcome)
    bench.step()
    assert bench.submitted == []

    bench.step(after=1.0)

    assert bench.submitted == [rest]
    assert bench.leadership.reasons == []


def test_while_a_request_is_out_it_is_waited_for_and_not_a_report(bench: Bench) -> None:
    bench.stash(record(1))
    bench.step()
    assert bench.dispatcher.step() == 0.0
    assert bench.producer.waits[-1] == REPORT_WAIT

    bench.now += 0.2
    bench.dispatcher.step()
    assert len(bench.requests) == 1
    assert bench.dispatcher.step() == REPORT_WAIT
    assert bench.producer.waits[-1] == 0
