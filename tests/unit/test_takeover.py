"""Who relays another cluster's records, and when."""

from __future__ import annotations

import pytest

from django_outbox.relay.takeover import delay, distance, successors
from tests.takeover_rule import Aged, eligible, is_due
from tests.unit.takeovers import CASES, IN_ORDER, Case


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_case_of_the_table(case: Case) -> None:
    eligible = {
        this_cluster
        for this_cluster in range(case.count)
        if is_due(
            case.age,
            case.origin,
            this_cluster=this_cluster,
            count=case.count,
            maximum_delay=10.0,
        )
    }
    assert eligible == case.relayed_by


@pytest.mark.parametrize(("records", "found"), IN_ORDER)
def test_a_record_waits_for_all_earlier_ones_of_its_key(
    records: list[Aged], found: list[int]
) -> None:
    may_go = eligible(reversed(records), this_cluster=1, count=3, maximum_delay=10.0)

    assert [record.id for record in may_go] == found


@pytest.mark.parametrize(
    ("origin", "this_cluster", "count", "steps"),
    [
        (0, 0, 1, 0),
        (0, 1, 3, 1),
        (0, 2, 3, 2),
        (2, 0, 3, 1),
        (1, 0, 3, 2),
        (4, 1, 3, 0),
    ],
)
def test_the_distance_goes_one_way_round(
    origin: int, this_cluster: int, count: int, steps: int
) -> None:
    assert distance(origin, this_cluster, count) == steps


@pytest.mark.parametrize(
    ("origin", "count", "turns"),
    [
        (0, 1, []),
        (1, 4, [(2, 60.0), (3, 120.0), (0, 180.0)]),
        (2, 3, [(0, 60.0), (1, 120.0)]),
        # The home of a cluster that is not known waits, too.
        (4, 3, [(1, 60.0), (2, 120.0), (0, 180.0)]),
    ],
)
def test_the_others_take_over_in_turn(
    origin: int, count: int, turns: list[tuple[int, float]]
) -> None:
    assert successors(origin, count=count, maximum_delay=60.0) == turns


@pytest.mark.parametrize("count", [2, 3, 7, 32])
def test_no_two_clusters_ever_have_the_same_delay(count: int) -> None:
    """So that one takes over, not all of the others at once."""
    for origin in (*range(count), count, count + 1, -1):
        waits = [
            delay(origin, this_cluster=this_cluster, count=count, maximum_delay=10.0)
            for this_cluster in range(count)
        ]
        assert len(set(waits)) == count


@pytest.mark.parametrize("count", [1, 2, 3, 32])
def test_every_record_has_somebody_who_relays_it_in_the_end(count: int) -> None:
    for origin in range(-40, 40):
        for age in (1e12, float("inf"), float("-inf")):
            assert any(
                is_due(
                    age,
                    origin,
                    this_cluster=this_cluster,
                    count=count,
                    maximum_delay=10.0,
                )
                for this_cluster in range(count)
            )
