"""When a takeover begins and ends, and that own records go first."""

from __future__ import annotations

from typing import Any

from django_outbox.message.record import Record
from django_outbox.relay.takeovers import TakeoverChange, Takeovers
from django_outbox.relay.waiting_records import Waiting

from .samples import record, relay_settings


def foreign(number: int, key: str = "k", *, cluster_id: int = 2) -> Record:
    """Make a record of another cluster than 0."""
    return record(number, key)._replace(cluster_id=cluster_id)


def test_a_takeover_begins_with_the_first_record_of_another_cluster() -> None:
    takeovers = Takeovers(this_cluster=0, quiet=10.0)

    takeovers.found("id", [record(1), foreign(2), foreign(5)], 100.0)
    takeovers.found("id", [foreign(8)], 101.0)

    assert takeovers.changes() == [TakeoverChange("id", 2, 2, has_ended=False)]
    assert takeovers.changes() == []


def test_a_takeover_ends_when_nothing_was_found_for_a_while() -> None:
    takeovers = Takeovers(this_cluster=0, quiet=10.0)
    takeovers.found("id", [foreign(2)], 100.0)
    takeovers.found("id", [foreign(5)], 105.0)
    takeovers.changes()

    takeovers.found("id", [], 114.9)
    assert takeovers.changes() == []
    takeovers.found("id", [], 115.0)
    assert takeovers.changes() == [TakeoverChange("id", 2, 2, has_ended=True)]


def test_takeovers_end_with_the_leadership() -> None:
    takeovers = Takeovers(this_cluster=0, quiet=10.0)
    takeovers.found("id", [foreign(2), foreign(1, cluster_id=1)], 100.0)
    takeovers.changes()

    takeovers.stop()

    assert {one.origin for one in takeovers.changes() if one.has_ended} == {1, 2}
    takeovers.stop()
    assert takeovers.changes() == []


def shared(*records: Record, **changes: Any) -> Waiting:
    """A queue of records of several clusters, all of a proven topic."""
    queue = Waiting(relay_settings(clusters=3, **changes))
    queue.proven_topics = {"t"}
    queue.add(records)
    return queue


def batches(queue: Waiting) -> list[list[int]]:
    """Take batches until nothing may go; return their ids."""
    taken = []
    while batch := queue.take(100, 0.0, set):
        taken.append([one.id for one in batch.records])
    return taken


def test_own_records_go_before_those_of_other_clusters() -> None:
    queue = shared(foreign(2, "a"), foreign(5, "b"), record(4, "c"))
    assert (queue.of_this_cluster, queue.of_others) == (1, 2)

    assert batches(queue) == [[4], [2, 5]]


def test_a_record_that_comes_back_joins_those_of_its_cluster() -> None:
    queue = shared(foreign(2), record(4, "c"))
    queue.take(9, 0.0, set)
    other = queue.take(9, 0.0, set)
    assert other is not None

    queue.put_back([*other.records, record(4, "c")])

    assert (queue.of_this_cluster, queue.of_others) == (1, 1)
    assert batches(queue) == [[4], [2]]


def test_a_key_with_records_of_two_clusters_is_limited_for_both() -> None:
    queue = shared(foreign(2, "a"), record(4, "a"), max_in_flight_per_key=1)

    assert batches(queue) == [[4]]
    queue.drop([record(4, "a")])
    assert batches(queue) == [[2]]


def test_records_of_others_that_are_forgotten_count_no_more() -> None:
    queue = shared(foreign(2, "a"), foreign(5, "a"), record(8))

    queue.forget([])

    assert (queue.of_this_cluster, queue.of_others, bool(queue)) == (0, 0, False)
