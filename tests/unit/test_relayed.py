"""Ranges of ids that are in the log."""

from __future__ import annotations

import pytest

from django_outbox.message.record import Record
from django_outbox.relay.ledger import committed_ids as module
from django_outbox.relay.ledger.committed_ids import CommittedIds, IdRange, extended
from tests.unit.samples import record

T0 = 1_700_000_000_000_000
"""When the samples were created."""


def records(*ids: int) -> list[Record]:
    return [record(id) for id in ids]


def bounds(ranges: object) -> list[tuple[int, int]]:
    return [(one.low, one.high) for one in ranges]  # type: ignore[attr-defined]


def test_ids_of_one_cluster_are_one_range() -> None:
    assert extended((), records(1, 4, 7, 10), step=3) == (IdRange(1, 10, 3, T0),)


def test_the_next_batch_makes_the_range_longer() -> None:
    ranges = extended((), records(2, 4), step=2)

    assert extended(ranges, records(6, 8), step=2) == (IdRange(2, 8, 2, T0),)


def test_an_id_that_was_passed_over_begins_another_range() -> None:
    assert bounds(extended((), records(2, 6, 8), step=2)) == [(2, 2), (6, 8)]


def test_an_id_that_comes_late_closes_the_gap() -> None:
    ranges = extended((), records(2, 6), step=2)

    assert bounds(extended(ranges, records(4), step=2)) == [(2, 6)]


def test_ids_that_are_not_of_the_series_have_ranges_of_their_own() -> None:
    """As a single outbox had them, before it became one of several."""
    ranges = extended((), records(1, 2, 3, 4, 5, 6), step=3)

    assert bounds(ranges) == [(1, 4), (2, 5), (3, 6)]
    assert all(one in CommittedIds(ranges) for one in records(1, 2, 3, 4, 5, 6))
    assert records(7)[0] not in CommittedIds(ranges)


def test_nothing_is_added_by_no_records() -> None:
    ranges = extended((), records(2, 6), step=2)

    assert extended(ranges, [], step=2) == ranges


def test_a_range_keeps_the_newest_time() -> None:
    old, new = record(2), record(4)._replace(created_at=str(T0 + 5))

    assert extended((), [old, new], step=2) == (IdRange(2, 4, 2, T0 + 5),)
    assert extended(extended((), [new], step=2), [old], step=2) == (
        IdRange(2, 4, 2, T0 + 5),
    )


def test_the_oldest_ranges_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RANGES", 2)

    assert bounds(extended((), records(2, 6, 10), step=2)) == [(6, 6), (10, 10)]


@pytest.mark.parametrize(
    ("id", "is_relayed"),
    [(3, False), (4, True), (5, False), (6, True), (8, True), (10, False), (-4, False)],
)
def test_only_the_ids_of_a_range_are_in_it(id: int, *, is_relayed: bool) -> None:
    assert (record(id) in CommittedIds([IdRange(4, 8, 2, T0)])) == is_relayed


def test_an_id_that_is_given_again_is_another_record() -> None:
    """After a failover; what has it now is younger than all that was relayed."""
    relayed = CommittedIds([IdRange(2, 8, 2, T0)])

    assert record(4) in relayed
    assert record(4)._replace(created_at=str(T0 + 1)) not in relayed


def test_a_message_that_is_sent_again_is_another_row() -> None:
    """As "Send again" in the admin writes it, under the same message id."""
    listed = CommittedIds(listed=records(5))

    assert record(5) in listed
    assert record(9)._replace(message_id=record(5).message_id) not in listed


def test_where_ids_are_given_again_the_ranges_of_before_are_void() -> None:
    """Else a younger record that was not sent would seem to be among them."""
    ranges = extended((), records(2, 4, 6, 8, 10), step=2)
    again = [one._replace(created_at=str(T0 + 9)) for one in records(4, 6)]

    ranges = extended(ranges, again, step=2)

    assert ranges == (IdRange(4, 6, 2, T0 + 9),)
    assert record(8)._replace(created_at=str(T0 + 5)) not in CommittedIds(ranges)


def test_a_change_of_the_count_leaves_the_ranges_of_before_as_they_are() -> None:
    ranges = extended(extended((), records(3, 6), step=3), records(7, 11), step=4)

    assert ranges == (IdRange(3, 6, 3, T0), IdRange(7, 11, 4, T0))
    found = [one.id for one in CommittedIds(ranges).among(records(3, 5, 6, 7, 9, 11))]
    assert found == [3, 6, 7, 11]


def test_none_are_no_ranges() -> None:
    assert not CommittedIds()
    assert record(1) not in CommittedIds()
