"""What a failure means: a key is blocked, or a record is parked."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from django_outbox.exceptions import RecordPoisoned
from django_outbox.message.record import Failure, KeyToRead
from django_outbox.message.retry import RetryPolicy
from django_outbox.relay.batch import Accepted, Fault
from django_outbox.relay.blocked_key import RECHECK_INTERVAL
from django_outbox.relay.settlement import Settled, Settlement
from tests.fakes.settling import settled

from .leading_engine import LATE, LeadingEngine, ids_of
from .samples import BLOCK, PARK, record, relay_settings

POISON = RecordPoisoned("no such topic", code="UNKNOWN_TOPIC")
SOMEBODY = RecordPoisoned("too large", code="MSG_SIZE", is_certain=False)
AT_ONCE = RetryPolicy(backoff=1.0, backoff_max=8.0, attempts=1)
A = ("t", "a")


# What fails.


def test_a_failure_blocks_its_key_and_no_other() -> None:
    engine = LeadingEngine(record(1, "a"), record(2, "b"), record(3, "a"))
    engine.end(engine.sent(2), r1=LATE)
    settlement = engine.settle()
    engine.found([record(4, "a"), record(5, "b")])

    assert engine.ids() == [5]
    assert list(engine.blocked) == [A]
    assert ids_of(settlement.acknowledged) == [2]
    assert settlement.failed == [Failure(record(1, "a"), "_MSG_TIMED_OUT: timed out")]
    assert not engine.must_refresh


def test_a_blocked_key_is_due_after_its_backoff_counted_from_the_note() -> None:
    engine = LeadingEngine()
    engine.fail(record(1, "a", attempts=1))
    assert engine.due(1e9) == [], "the table does not hold the failure yet"
    assert engine.blocked.retry_at == inf

    engine.settle(now=10.0)

    assert engine.blocked.retry_at == 12.0
    assert engine.due(11.9) == []
    assert engine.due(12.0) == [KeyToRead(A, 1)]
    engine.blocked.unblock([A])
    assert (engine.blocked, engine.blocked.retry_at) == ({}, inf)
    engine.found([record(1, "a", attempts=2), record(2, "a")])
    batch = engine.sent()
    assert (ids_of(batch.records), batch.is_apart) == ([1], True)
    engine.end(batch)
    assert engine.ids() == [2]


def test_a_retry_that_fails_blocks_its_key_for_longer() -> None:
    engine = LeadingEngine()
    engine.fail(record(1, "a"))
    engine.settle(now=10.0)
    engine.blocked.unblock([A])
    engine.fail(record(1, "a", attempts=1))
    engine.settle(now=20.0)

    assert engine.due(21.9) == []
    assert engine.due(22.0) == [KeyToRead(A, 1)]


def test_the_next_retry_is_that_of_the_key_that_is_due_first() -> None:
    engine = LeadingEngine()
    engine.fail(record(1, "a", attempts=2))
    engine.settle(now=0.0)
    engine.fail(record(2, "b"))
    engine.settle(now=0.0)
    assert engine.blocked.retry_at == 1.0

    assert [key for key, _ in engine.due(1.0)] == [("t", "b")]
    engine.blocked.unblock([("t", "b")])
    assert engine.blocked.retry_at == 4.0


def test_rows_of_a_blocked_key_are_read_again_from_the_lowest_one_on() -> None:
    """Each cluster counts its ids by itself: the failed one may have any."""
    engine = LeadingEngine()
    engine.fail(record(900, "a")._replace(cluster_id=1))
    engine.settle()
    engine.found([record(7, "a"), record(8, "b"), record(9, "a")])

    assert engine.ids() == [8]
    assert engine.due(now=1.0) == [KeyToRead(A, 7)]


def test_a_retry_waits_for_earlier_records_of_its_key() -> None:
    engine = LeadingEngine(record(1, "a"), record(2, "a"))
    first = engine.sent(1)
    engine.cut(engine.sent(), Accepted(0, POISON))
    engine.settle(now=0.0)

    assert engine.due(1.0) == []
    assert engine.blocked.retry_at == 1.0 + RECHECK_INTERVAL
    engine.done(first)
    assert engine.due(1.0 + RECHECK_INTERVAL) == [KeyToRead(A, 2)]


def test_only_the_first_fault_of_a_key_counts() -> None:
    engine = LeadingEngine(record(1, "a"), record(2, "a"), record(3, "b"))
    engine.end(engine.sent(), r1=LATE, r2=LATE, r3=LATE)

    assert [failure.record.id for failure in engine.settle().failed] == [1, 3]
    assert engine.failed == 2
    assert engine.waiting.known == set()


def test_recalled_records_go_again_in_order_and_those_of_blocked_keys_stay() -> None:
    keys = {1: "a", 2: "b", 3: "a", 4: "c", 5: "b", 6: "c"}
    engine = LeadingEngine(*(record(n, key) for n, key in keys.items()))
    first, second = engine.sent(3), engine.sent(2)
    records = [*first.records, *second.records]
    for batch in (first, second):
        engine.ended(batch)
    engine.refused([Fault(records[1], LATE)])

    engine.recall([records[0], *records[2:]])

    assert engine.ids() == [1, 3, 4, 6]
    assert 5 not in engine.waiting.known, "it has to be read again"
    assert engine.under_way == 4
    engine.settle(now=0.0)
    assert engine.due(1.0) == [KeyToRead(("t", "b"), 2)]


def test_a_recalled_record_before_the_failed_one_is_read_again_too() -> None:
    """A transaction that fails takes all of its records with it."""
    engine = LeadingEngine(*(record(n, "a") for n in (1, 2, 3)))
    batch = engine.sent()
    engine.ended(batch)
    engine.refused([Fault(record(2, "a"), LATE)])
    engine.recall([record(1, "a"), record(3, "a")])
    engine.settle(now=0.0)

    assert engine.ids() == []
    assert engine.due(1.0) == [KeyToRead(A, 1)]


def test_after_a_stand_down_nothing_is_recalled() -> None:
    engine = LeadingEngine(record(1), record(2), record(3))
    batch = engine.sent(2)
    engine.stand_down()
    engine.ended(batch)

    engine.recall(batch.records)

    assert engine.ids() == []
    assert engine.is_idle
    assert engine.waiting.known == set()


# Poison.


def test_block_key_never_parks() -> None:
    engine = LeadingEngine()
    engine.fail(record(1, attempts=50), POISON)

    assert engine.settle().poisoned == []


@pytest.mark.parametrize(
    ("attempts", "error", "is_parked"),
    [
        (1, POISON, True),
        (0, POISON, False),
        (1, SOMEBODY, False),
        (9, LATE, False),
    ],
)
def test_park_takes_certain_poison_after_enough_attempts(
    attempts: int, error: RecordPoisoned, is_parked: bool
) -> None:
    engine = LeadingEngine(retry=PARK)
    engine.fail(record(1, attempts=attempts), error)

    assert bool(engine.settle().poisoned) == is_parked


def test_negative_attempts_count_as_none() -> None:
    """Plain SQL may write any number."""
    row = record(1)._replace(attempts=-32768)

    assert BLOCK.delay(row.attempts + 1) == 1.0
    assert relay_settings(retry=AT_ONCE).should_park(row, POISON)
    assert not relay_settings(retry=PARK).should_park(row, POISON)


def test_a_topic_may_differ_in_what_becomes_of_its_poison_records() -> None:
    engine = LeadingEngine(
        record(1, "a", topic="t"),
        record(2, "a", topic="u"),
        retry=AT_ONCE,
        parks={"t": False, "u": True}.__getitem__,
    )
    engine.waiting.proven_topics = {"t", "u"}
    engine.end(engine.sent(), r1=POISON, r2=POISON)

    settlement = engine.settle()
    assert [failure.record.id for failure in settlement.failed] == [1]
    assert [failure.record.id for failure in settlement.poisoned] == [2]


def test_backoff_doubles_up_to_its_cap() -> None:
    assert [BLOCK.delay(n) for n in range(1, 6)] == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert BLOCK.delay(30_000) == 8.0


@pytest.mark.parametrize("per_key", [0, 1])
def test_followers_of_a_record_that_is_to_be_parked_wait_until_it_is(
    per_key: int,
) -> None:
    engine = LeadingEngine(retry=PARK, max_in_flight_per_key=per_key)
    engine.fail(record(1, "a", attempts=1), POISON)
    engine.found([record(2, "a"), record(3, "b")])
    assert engine.ids() == [3]
    settlement = engine.settlement()
    assert settlement is not None
    assert [failure.record.id for failure in settlement.poisoned] == [1]
    assert engine.ids() == []

    engine.settled(settled(settlement), now=0.0)

    assert engine.ids() == [2]
    assert engine.blocked == {}


def test_followers_that_are_recalled_wait_for_the_parking_too() -> None:
    engine = LeadingEngine(record(1, "a"), record(2, "a"), retry=AT_ONCE)
    batch = engine.sent()
    engine.ended(batch)
    engine.refused([Fault(record(1, "a"), POISON)])

    engine.recall([record(2, "a")])

    assert engine.ids() == []
    engine.settle()
    assert engine.ids() == [2]


def test_followers_wait_for_the_parking_whatever_comes_of_earlier_records() -> None:
    engine = LeadingEngine(*(record(n, "a") for n in (1, 2, 3)), retry=AT_ONCE)
    first = engine.sent(1)
    engine.cut(engine.sent(), Accepted(0, POISON))
    engine.ended(first)

    engine.recall(first.records)

    early = engine.ids()
    assert 3 not in early
    engine.settle()
    assert [*early, *engine.ids()] == [1, 3]


def test_followers_wait_until_a_row_that_cannot_be_parked_now_is_parked() -> None:
    engine = LeadingEngine(retry=PARK)
    engine.fail(record(1, "a", attempts=1), POISON)
    engine.found([record(2, "a")])
    settlement = engine.settlement()
    assert settlement is not None

    rest = engine.settled(unparked(settlement), now=0.0)

    assert rest is not None
    assert not engine.waiting, "it waits in the table, where there is room"
    assert engine.due(0.0) == []
    engine.settled(settled(rest), now=0.0)
    assert engine.due(0.0) == [KeyToRead(A, 1)]


def test_followers_of_a_row_that_stays_leave_room_with_one_record_of_a_key() -> None:
    engine = LeadingEngine(max_in_flight_per_key=1, page_rows=1)
    engine.found([record(1, "a"), record(2, "a"), record(3, "b")])
    engine.done(engine.sent(1))
    settlement = engine.settlement()
    assert settlement is not None

    rest = engine.settled(stuck(settlement), now=0.0)

    assert rest is not None
    assert engine.ids() == [3]
    engine.found([record(4, "a"), record(5, "b")])
    assert engine.waiting.of_this_cluster == 1, "only that of the other key"
    assert A in engine.waiting.limited
    engine.settled(settled(rest), now=0.0)
    assert engine.due(0.0) == [KeyToRead(A, 1)]


def test_a_row_that_cannot_be_parked_is_left_to_the_next_leader_id() -> None:
    """That one reads it again, and before later rows of its key."""
    engine = LeadingEngine(retry=PARK)
    engine.fail(record(1, "a", attempts=1), POISON)
    engine.found([record(2, "a")])
    settlement = engine.settlement()
    assert settlement is not None
    engine.refresh("a test")

    assert engine.settled(unparked(settlement), now=0.0) is None

    engine.begin("next")
    engine.found([record(1, "a", attempts=1), record(2, "a")])
    assert engine.ids() == [1]


def unparked(settlement: Settlement) -> Settled:
    """The outcome of a settlement whose poisoned rows are locked."""
    rest = Settlement(leader_id="me", poisoned=settlement.poisoned, tries=1)
    return replace(settled(settlement), poisoned=[], parked=0, rest=rest)


def stuck(settlement: Settlement) -> Settled:
    """The outcome of a settlement whose acknowledged rows are locked."""
    rest = Settlement(leader_id="me", acknowledged=settlement.acknowledged, tries=1)
    return replace(settled(settlement), acknowledged=[], purged=0, rest=rest)
