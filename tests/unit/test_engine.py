"""The relay's decisions, one at a time."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from django_outbox.exceptions import RecordPoisoned
from django_outbox.message.record import KeyToRead, Record, Sweep
from django_outbox.relay.batch import Accepted, Fault
from django_outbox.relay.engine import READ_AHEAD
from django_outbox.relay.settlement import Settlement
from tests.fakes.settling import settled

from .leading_engine import LATE, LeadingEngine, ids_of
from .samples import PARK, record, with_headers

POISON = RecordPoisoned("no such topic", code="UNKNOWN_TOPIC")
A = ("t", "a")


# What is in flight.


def test_the_throttle_holds_at_max_in_flight_until_rows_are_gone() -> None:
    engine = LeadingEngine(*(record(n) for n in (1, 2, 3)), max_in_flight=2)
    batch = engine.sent()
    assert ids_of(batch.records) == [1, 2]

    engine.done(batch)
    assert engine.ids() == []
    engine.settle()
    assert engine.ids() == [3]


def test_with_one_record_of_a_key_the_settlement_lets_the_next_one_go() -> None:
    """An acknowledgement is not enough: after a crash, its row is sent again."""
    engine = LeadingEngine(record(1, "a"), record(2, "a"), max_in_flight_per_key=1)
    engine.end(engine.sent())
    assert engine.ids() == []
    settlement = engine.settlement()
    assert settlement is not None
    assert engine.ids() == []

    engine.settled(settled(settlement), now=0.0)

    assert engine.ids() == [2]


def test_what_has_no_outcome_is_told_from_what_is_not_settled() -> None:
    engine = LeadingEngine(record(1, "a"), record(2, "b"))
    first, _ = engine.sent(1), engine.sent(1)
    assert (engine.under_way, engine.in_flight) == (2, 2)

    engine.done(first)
    assert (engine.under_way, engine.in_flight) == (1, 2)
    engine.settle()
    assert (engine.under_way, engine.in_flight) == (1, 1)
    assert not engine.is_idle


def test_batches_settle_in_the_order_in_which_they_were_sent() -> None:
    """A producer that breaks may still tell that the first one has failed."""
    engine = LeadingEngine(*(record(n, "a") for n in range(1, 6)))
    first, second, third = engine.sent(2), engine.sent(2), engine.sent(2)

    engine.done(third)
    engine.done(second)
    assert engine.settlement() is None
    engine.done(first)

    assert ids_of(engine.settle().acknowledged) == [1, 2, 3, 4, 5]
    assert engine.is_idle


def test_behind_a_batch_with_faults_nothing_settles() -> None:
    engine = LeadingEngine(record(1), record(2))
    first, second = engine.sent(1), engine.sent(1)
    first.faults, first.is_reported = [Fault(record(1), LATE)], True

    engine.done(second)

    assert engine.settlement() is None


def test_a_settlement_carries_the_leader_id_of_its_records() -> None:
    engine = LeadingEngine(record(1))
    batch = engine.sent()
    engine.stand_down()
    engine.done(batch)

    assert engine.settle().leader_id == "me"


def test_what_is_decided_is_handed_out_once() -> None:
    engine = LeadingEngine(record(1))
    assert engine.settlement() is None
    engine.done(engine.sent())

    assert engine.settlement() is not None
    assert engine.settlement() is None
    assert engine.in_flight == 1


# A part of a batch.


def test_what_a_full_queue_has_not_taken_goes_first_the_next_time() -> None:
    engine = LeadingEngine(*(record(n, "a") for n in range(1, 6)))
    batch = engine.sent(4)

    engine.cut(batch, Accepted(1))

    assert ids_of(batch.records) == [1]
    assert engine.under_way == 1
    assert engine.ids() == [2, 3, 4, 5]


def test_a_batch_of_which_nothing_was_taken_is_none() -> None:
    engine = LeadingEngine(record(1), record(2))
    engine.cut(engine.sent(), Accepted(0))

    assert (engine.under_way, len(engine.batches)) == (0, 0)
    assert engine.ids() == [1, 2]


def test_a_record_that_is_not_queued_blocks_its_key_and_others_go() -> None:
    engine = LeadingEngine(*(record(n, "aab"[n - 1]) for n in (1, 2, 3)))
    batch = engine.sent()

    engine.cut(batch, Accepted(0, POISON))

    assert engine.ids() == [3]
    assert ids_of([failure.record for failure in engine.settle().failed]) == [1]
    assert engine.due(now=1.0) == [KeyToRead(A, 1)]


# A new leader id.


def test_a_new_leader_id_forgets_queue_and_blocked_keys() -> None:
    engine = LeadingEngine(record(1, "a"), record(2, "b"), record(3, "b"))
    engine.end(engine.sent(2), r1=LATE)
    engine.settle()

    engine.begin("next")

    assert (engine.run, engine.leader_id) == (2, "next")
    assert (engine.in_flight, engine.waiting.of_this_cluster) == (0, 0)
    assert engine.blocked == {}
    assert engine.blocked.retry_at == inf


def test_an_id_is_not_taken_while_something_is_under_way() -> None:
    engine = LeadingEngine(record(1))
    engine.sent()

    with pytest.raises(AssertionError, match="nothing is under way"):
        engine.begin("next")


def test_a_new_run_keeps_what_waits_to_be_purged() -> None:
    """A ledger speaks of it, so it is not sent again."""
    engine = LeadingEngine(record(1), record(2, "b"))
    engine.end(engine.sent(), r2=LATE)
    settlement = engine.settlement()
    assert settlement is not None

    engine.begin("me")

    assert ids_of(engine.unpurged) == [1]
    engine.found([record(1), record(2, "b"), record(3)])
    assert engine.ids() == [3], "of the failure the table knows nothing yet"
    engine.settled(settled(settlement), now=0.0)
    assert engine.unpurged == []


def test_a_request_for_a_new_id_stops_everything_but_settlements() -> None:
    engine = LeadingEngine(record(1), record(2))
    batch = engine.sent(1)

    engine.refresh("a first reason")
    engine.refresh("a second reason")

    assert (engine.must_refresh, engine.refresh_reason) == (True, "a first reason")
    assert engine.ids() == []
    engine.done(batch)
    assert ids_of(engine.settle().acknowledged) == [1]


@pytest.mark.parametrize("marks_in_table", [True, False])
def test_rows_that_another_has_purged_lead_to_a_new_id_where_rows_are_marked(
    marks_in_table: bool,
) -> None:
    engine = LeadingEngine(
        record(1, "a"), record(2, "b"), record(3, "b"), marks_in_table=marks_in_table
    )
    engine.end(engine.sent(2))

    engine.settle(purged=1)

    assert engine.must_refresh == marks_in_table
    assert ("1 purged rows" in engine.refresh_reason) == marks_in_table
    assert engine.in_flight == 0


def test_a_parked_row_that_another_has_marked_leads_to_a_new_id() -> None:
    engine = LeadingEngine(retry=PARK, marks_in_table=True)
    engine.fail(record(1, attempts=1), POISON)
    settlement = engine.settlement()
    assert settlement is not None

    engine.settled(replace(settled(settlement), parked=0), now=0.0)

    assert "1 parked rows" in engine.refresh_reason


def test_a_row_that_is_read_twice_is_sent_once() -> None:
    engine = LeadingEngine(record(1), record(2))
    engine.found([record(2), record(3)])

    assert engine.ids() == [1, 2, 3]
    engine.found([record(3)])
    assert engine.ids() == []


def test_a_row_that_is_marked_twice_leads_to_a_new_id() -> None:
    """Who took it meanwhile, and what it did, is not known."""
    engine = LeadingEngine(record(1), record(2), marks_in_table=True)
    engine.found([record(2), record(3)])

    assert engine.must_refresh
    assert engine.ids() == []


def test_a_row_that_is_purged_while_a_page_is_read_is_not_sent_again() -> None:
    engine = LeadingEngine(record(1))
    engine.done(engine.sent())
    engine.begin_read()
    engine.settle()

    engine.found([record(1), record(2)])
    assert engine.ids() == [2]
    engine.begin_read()
    engine.found([record(1)])
    assert engine.ids() == [1], "a row that was restored since"


# Rows that are in the log already.


def test_a_row_that_is_in_the_log_is_purged_and_not_sent() -> None:
    engine = LeadingEngine()
    engine.in_log([record(1), record(2)])

    assert engine.ids() == []
    assert not engine.is_idle
    assert ids_of(engine.unpurged) == [1, 2]
    settlement = engine.settle()
    assert (ids_of(settlement.acknowledged), settlement.leader_id) == ([1, 2], "me")
    assert engine.is_idle


def test_a_row_that_the_table_keeps_is_purged_later_and_not_sent_again() -> None:
    engine = LeadingEngine(record(1), record(2))
    engine.done(engine.sent())
    settlement = engine.settlement()
    assert settlement is not None
    rest = Settlement(leader_id="me", acknowledged=[record(1)], tries=1)
    outcome = replace(settled(settlement), acknowledged=[record(2)], rest=rest)

    assert engine.settled(outcome, now=0.0) is rest
    assert (engine.in_flight, engine.unsettled) == (1, 0)

    engine.begin("next")
    engine.found([record(1), record(3)])
    assert engine.ids() == [3]
    assert engine.settled(settled(rest), now=0.0) is None
    assert engine.in_flight == 1, "record 3"
    engine.begin_read()
    engine.found([record(1)])
    assert engine.ids() == [1], "another row has drawn its id again"


def test_a_sweep_passes_over_what_is_known_or_blocked() -> None:
    engine = LeadingEngine()
    engine.fail(record(1, "a"))
    engine.settle()
    engine.found([record(2, "b"), record(3, "b")])
    engine.sent(1)

    assert engine.sweep() == Sweep(frozenset({2, 3}), (A,))


# Room for pages.


def test_a_page_that_waits_leaves_no_room_for_another() -> None:
    engine = LeadingEngine(record(1), record(2), page_rows=3)
    assert engine.has_room

    engine.found([record(3)])
    assert not engine.has_room
    engine.sent(1)
    assert engine.has_room


def test_records_behind_a_hot_key_leave_room_for_others_up_to_a_bound() -> None:
    engine = LeadingEngine(page_rows=10, max_in_flight_per_key=1)
    engine.found([record(n, "hot") for n in range(1, 10 * READ_AHEAD)])
    assert engine.ids() == [1]

    assert engine.has_room
    engine.found([record(1000, "hot"), record(1001, "hot")])
    assert not engine.has_room


@pytest.mark.parametrize(
    "large", [record(1, value="v" * 501), with_headers(1, size=501)]
)
def test_large_records_leave_no_room_until_they_are_settled(large: Record) -> None:
    engine = LeadingEngine(large, page_bytes=500)
    batch = engine.sent()
    assert not engine.has_room

    engine.done(batch)
    assert not engine.has_room
    engine.settle()
    assert engine.has_room


def test_rows_that_the_table_keeps_leave_less_room() -> None:
    engine = LeadingEngine(record(1), record(2), page_rows=2)
    engine.done(engine.sent())
    settlement = engine.settlement()
    assert settlement is not None
    stuck = Settlement(leader_id="me", acknowledged=settlement.acknowledged, tries=1)

    engine.settled(replace(settled(settlement), acknowledged=[], rest=stuck), now=0.0)

    assert not engine.has_room
    engine.settled(settled(stuck), now=0.0)
    assert engine.has_room
