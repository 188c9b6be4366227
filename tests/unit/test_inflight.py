"""The scoreboard: one record in flight for each key, all others in order."""

from __future__ import annotations

from django_outbox.relay.mpr.inflight import InFlight
from tests.unit.samples import record


def taken(flying: InFlight) -> list[int]:
    """Take all that may fly now; return the ids."""
    ids = []
    while records := flying.take(2):
        ids += [one.id for one in records]
    return ids


def test_a_lane_has_one_record_in_flight() -> None:
    flying = InFlight()
    flying.enqueue([record(1, "a"), record(2, "a"), record(3, "b")])

    assert [1, 3] == taken(flying)
    assert 2 == flying.count
    assert 1 == flying.queued


def test_settling_lets_the_next_of_the_lane_fly() -> None:
    flying = InFlight()
    flying.enqueue([record(1, "a"), record(2, "a"), record(3, "a")])
    taken(flying)

    flying.settle([record(1, "a")])
    assert [2] == taken(flying)
    flying.settle([record(2, "a")])
    assert [3] == taken(flying)
    flying.settle([record(3, "a")])
    assert (0, 0) == (flying.count, flying.queued)


def test_the_same_key_on_two_topics_makes_two_lanes() -> None:
    flying = InFlight()
    flying.enqueue([record(1, "a", topic="x"), record(2, "a", topic="y")])

    assert [1, 2] == taken(flying)


def test_untaken_records_come_first_again_in_their_order() -> None:
    flying = InFlight()
    flying.enqueue([record(1, "a"), record(2, "b"), record(3, "c")])
    first = flying.take(2)

    flying.put_back(first)

    assert (0, 3) == (flying.count, flying.queued)
    assert [1, 2, 3] == taken(flying)


def test_dropped_followers_are_forgotten() -> None:
    flying = InFlight()
    flying.enqueue([record(1, "a"), record(2, "a"), record(3, "b")])
    taken(flying)

    assert 1 == flying.drop_followers(("t", "a"))
    flying.settle([record(1, "a")])

    assert [] == taken(flying)
    assert 0 == flying.queued


def test_a_dropped_queue_leaves_the_barriers_of_what_flies() -> None:
    flying = InFlight()
    flying.enqueue([record(1, "a"), record(2, "a"), record(3, "b")])
    (one,) = flying.take(1)

    flying.drop_queue()
    flying.enqueue([record(2, "a"), record(3, "b")])

    assert [3] == taken(flying)
    flying.settle([one])
    assert [2] == taken(flying)


def pipelined() -> InFlight:
    """Any number of records of a key may be in flight."""
    return InFlight(per_key=0)


def prove(flying: InFlight, key: str, *, id: int = 0) -> None:
    """Deliver one record of a key, which the producer has not sent before."""
    flying.enqueue([record(id, key)])
    (one,) = flying.take(1)
    flying.acknowledged([one])
    flying.settle([one])


def test_a_keys_first_record_goes_alone_until_it_is_acknowledged() -> None:
    flying = pipelined()
    flying.enqueue([record(n, "a") for n in (1, 2, 3)])

    (first,) = flying.take(10)
    assert [] == flying.take(10)
    flying.acknowledged([first])

    assert [2, 3] == taken(flying)


def test_any_number_of_a_proven_key_may_go() -> None:
    flying = pipelined()
    prove(flying, "a")

    flying.enqueue([record(n, "a") for n in (1, 2, 3)])

    assert [1, 2, 3] == taken(flying)


def test_a_record_that_has_failed_goes_apart_with_nothing_else_of_its_key() -> None:
    flying = pipelined()
    prove(flying, "a")
    flying.enqueue([record(1, "a"), record(2, "a", attempts=1), record(3, "a")])

    (first,) = flying.take(10)
    assert not flying.apart
    flying.acknowledged([first])
    assert [] == flying.take(10)
    flying.settle([first])

    (second,) = flying.take(10)
    assert {2} == flying.apart
    flying.acknowledged([second])
    assert [] == flying.take(10)
    flying.settle([second])

    assert not flying.apart
    assert [3] == taken(flying)


def test_a_record_that_went_apart_proves_nothing() -> None:
    flying = pipelined()
    flying.enqueue([record(1, "a", attempts=1), record(2, "a"), record(3, "a")])
    (first,) = flying.take(10)
    flying.acknowledged([first])
    flying.settle([first])

    assert [2] == taken(flying)


def test_what_was_not_acknowledged_is_recalled_in_order() -> None:
    flying = pipelined()
    prove(flying, "a")
    flying.enqueue([record(n, "a") for n in (1, 2, 3, 4)])
    first, *_ = flying.take(3)
    flying.acknowledged([first])

    recalled = flying.recall()

    assert [2, 3, 4] == [one.id for one in recalled]
    assert (1, 0, frozenset({1})) == (flying.count, flying.queued, flying.ids)
    flying.enqueue(recalled)
    assert [] == taken(flying), "the next producer has proven nothing yet"
    flying.settle([first])
    assert [2] == taken(flying)


def test_no_ready_record_of_a_dropped_key_is_taken() -> None:
    flying = pipelined()
    prove(flying, "a")
    flying.enqueue([record(1, "a"), record(2, "a"), record(3, "b")])
    flying.take(1)

    flying.drop_followers(("t", "a"))

    assert [3] == taken(flying)
    assert not flying.holds_any([2])
