"""What is paused, and what the engine and the dispatcher make of it."""

from __future__ import annotations

import pytest

from django_outbox.message.pauses import NOTHING_PAUSED, Pauses
from django_outbox.relay.dispatcher import LOOK_INTERVAL

from .dispatcher_bench import Bench
from .leading_engine import LATE, LeadingEngine
from .samples import record

EVERYTHING = Pauses.of([("", None)])
TOPIC = Pauses.of([("t", None)])
KEY = Pauses.of([("t", "a")])


def test_a_pause_is_of_a_topic_a_key_or_everything() -> None:
    pauses = Pauses.of([("orders", None), ("t", "a"), ("t", "")])
    assert pauses.holds(record(1, "x", topic="orders"))
    assert pauses.holds(record(1, "a"))
    assert pauses.holds(record(1, ""))
    assert not pauses.holds(record(1, "b"))
    assert not pauses.holds(record(1, "a", topic="other"))
    assert EVERYTHING.holds(record(1))
    assert (len(pauses), len(EVERYTHING), len(NOTHING_PAUSED)) == (3, 1, 0)


@pytest.mark.parametrize(
    ("more", "less", "includes"),
    [
        (NOTHING_PAUSED, NOTHING_PAUSED, True),
        (TOPIC, NOTHING_PAUSED, True),
        (NOTHING_PAUSED, TOPIC, False),
        (TOPIC, KEY, True),
        (KEY, TOPIC, False),
        (KEY, Pauses.of([("t", "b")]), False),
        (EVERYTHING, TOPIC, True),
        (TOPIC, EVERYTHING, False),
        (EVERYTHING, EVERYTHING, True),
    ],
)
def test_pauses_include_others_that_hold_no_other_record(
    more: Pauses, less: Pauses, includes: bool
) -> None:
    assert more.includes(less) is includes


# The engine.


def test_what_is_paused_stays_in_the_table_and_all_else_goes() -> None:
    engine = LeadingEngine()
    engine.pause(KEY)
    engine.found([record(1, "a"), record(2, "b"), record(3, "a")])

    assert engine.ids() == [2]
    assert not engine.must_refresh


def test_what_waits_when_a_pause_begins_is_not_sent() -> None:
    engine = LeadingEngine(record(1, "a"), record(2, "b"))
    engine.pause(KEY)

    assert engine.ids() == [2]
    engine.pause(Pauses.of([("t", "a"), ("other", None)]))
    assert not engine.must_refresh, "more was paused, and nothing resumed"


def test_what_is_taken_back_during_a_pause_is_not_sent_again() -> None:
    engine = LeadingEngine(record(1, "a"), record(2, "b"))
    batch = engine.sent()
    engine.pause(KEY)
    engine.ended(batch)
    engine.recall(batch.records)

    assert engine.ids() == [2]


def test_a_record_that_has_failed_and_is_paused_is_not_tried_again() -> None:
    engine = LeadingEngine()
    engine.fail(record(1, "a"))
    engine.settle()
    engine.pause(KEY)
    (due,) = engine.due(100.0)
    engine.blocked.unblock([due.ordering_key])
    engine.found([record(1, "a", attempts=1)])

    assert engine.ids() == []


def test_what_is_resumed_is_read_again_from_the_head() -> None:
    engine = LeadingEngine()
    engine.pause(TOPIC)
    engine.found([record(1, "a")])
    engine.pause(KEY)

    assert engine.must_refresh
    assert engine.take(1, 0.0) is None


def test_a_new_run_learns_anew_what_is_paused() -> None:
    engine = LeadingEngine()
    engine.pause(TOPIC)
    engine.begin("next")
    engine.pause(KEY)

    assert not engine.must_refresh


def test_a_pause_of_everything_reads_nothing() -> None:
    engine = LeadingEngine()
    assert engine.has_room
    engine.pause(EVERYTHING)
    assert not engine.has_room


def test_a_sweep_passes_over_what_is_paused() -> None:
    engine = LeadingEngine()
    engine.fail(record(1, "failed"), LATE)
    engine.pause(Pauses.of([("orders", None), ("t", "a")]))
    sweep = engine.sweep()

    assert set(sweep.passed) == {("t", "failed"), ("t", "a")}
    assert set(sweep.passed_topics) == {"orders"}


# The dispatcher.


def test_the_first_page_is_read_after_the_pauses() -> None:
    bench = Bench()
    bench.table.paused = TOPIC
    bench.stash(record(1, "a"), record(2, "b", topic="other"))
    bench.step()

    assert bench.sent == [[2]]


def test_pauses_are_looked_for_once_a_second_also_without_room() -> None:
    bench = Bench(page_rows=2, max_in_flight=2)
    bench.stash(*(record(n, f"k{n}") for n in range(1, 9)))
    bench.step()
    assert bench.sent == [[1, 2]]
    bench.table.paused = TOPIC
    for _ in range(round(LOOK_INTERVAL / 0.2) + 1):
        bench.step()

    bench.producer.ack()
    bench.step()
    bench.settle()
    bench.step()

    assert bench.sent == [[1, 2]]
    assert set(bench.table.rows) == {3, 4, 5, 6, 7, 8}


def test_resumed_records_go_in_order_under_a_new_leader_id() -> None:
    bench = Bench()
    bench.table.paused = KEY
    bench.stash(record(1, "a"), record(2, "a"), record(3, "b"))
    bench.step()
    assert bench.sent == [[3]]
    bench.producer.ack()
    bench.step()
    bench.settle()
    bench.table.paused = NOTHING_PAUSED
    bench.step(after=LOOK_INTERVAL)
    bench.step()
    bench.step()

    (reason,) = bench.leadership.reasons
    assert "paused" in reason
    assert bench.producer.sent == [3, 1]
