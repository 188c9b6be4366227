"""The scoreboard: one record in flight for each lane, all others in order."""

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
