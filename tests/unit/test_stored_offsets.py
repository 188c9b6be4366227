"""Which stored offsets still belong to their partitions."""

from __future__ import annotations

import pytest

from django_outbox.consuming.stored_offsets import StoredOffset, start_of
from django_outbox.exceptions import StaleOffset
from django_outbox.message.incoming import BEGINNING, PartitionState

PLACE = ("orders", 3)


def start(
    next_offset: int, found: PartitionState | None, *, topic_id: str = "one"
) -> int:
    return start_of(PLACE, StoredOffset(next_offset, topic_id), found, group="billing")


@pytest.mark.parametrize("next_offset", [5, 7, 10])
def test_what_the_partition_still_has_or_gets_next_is_right(next_offset: int) -> None:
    assert start(next_offset, PartitionState("one", 5, 10)) == next_offset


@pytest.mark.parametrize(
    ("next_offset", "found", "why"),
    [
        (4, PartitionState("one", 5, 10), "begins at 5"),
        (11, PartitionState("one", 5, 10), "ends at 10"),
        (11, PartitionState("", 0, 10), "ends at 10"),
        (7, PartitionState("another", 0, 10), "deleted and created again"),
    ],
)
def test_what_would_skip_messages_is_refused_with_the_cure(
    next_offset: int, found: PartitionState, why: str
) -> None:
    with pytest.raises(StaleOffset, match=why) as caught:
        start(next_offset, found)
    assert f"at offset {next_offset} of orders/3" in str(caught.value)
    assert "manage.py outbox rewind billing orders" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_topic_whose_id_was_not_known_is_judged_by_its_offsets() -> None:
    assert start(7, PartitionState("one", 0, 10), topic_id="") == 7


def test_a_group_that_was_rewound_reads_from_the_beginning() -> None:
    assert start(0, PartitionState("one", 5, 10), topic_id="") == BEGINNING


def test_a_partition_that_kafka_does_not_know_is_not_judged() -> None:
    assert start(7, None) == 7
