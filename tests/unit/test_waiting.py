"""Which of the records that wait may go, and together with which others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from django_outbox.message.record import OrderingKey, Record
from django_outbox.relay import waiting_records as waiting_module
from django_outbox.relay.batch import Batch
from django_outbox.relay.waiting_records import Waiting

from .samples import record, relay_settings, with_headers

A = ("t", "a")


def waiting(
    *records: Record, proven: Sequence[str] = ("t",), **changes: Any
) -> Waiting:
    """A queue of these records; the partitions of some topics are proven."""
    made = Waiting(relay_settings(**changes))
    made.proven_topics = set(proven)
    made.add(records)
    return made


def take(
    queue: Waiting,
    most: int = 100,
    *,
    under_way: Sequence[OrderingKey] = (),
    page_bytes: int | None = None,
) -> Batch | None:
    return queue.take(most, 0.0, lambda: set(under_way), page_bytes)


def ids(batch: Batch | None) -> list[int]:
    return [one.id for one in batch.records] if batch else []


def all_ids(queue: Waiting) -> list[list[int]]:
    """Take batches until nothing may go."""
    batches = []
    while batch := take(queue):
        batches.append(ids(batch))
    return batches


# Any number of a key.


def test_a_batch_is_the_head_of_the_queue() -> None:
    queue = waiting(*(record(n, "a") for n in range(1, 6)))

    assert ids(take(queue, 2)) == [1, 2]
    assert queue.of_this_cluster == 3
    assert all_ids(queue) == [[3, 4, 5]]
    assert not queue


def test_a_topic_of_which_a_partition_is_not_proven_sends_one_record_of_a_key() -> None:
    queue = waiting(*(record(n, "ab"[n % 2]) for n in range(1, 6)), proven=[])

    batch = take(queue)
    assert batch is not None
    assert ids(batch) == [1, 2]
    assert batch.proves_keys
    assert take(queue) is None

    queue.prove([batch.records[0].ordering_key])
    assert all_ids(queue) == [[3, 5]]


def test_a_proven_key_goes_on_beside_one_that_is_not() -> None:
    queue = waiting(record(1, "a"), proven=[])
    batch = take(queue)
    assert batch is not None
    queue.prove([record.ordering_key for record in batch.records])
    queue.add([record(2, "a"), record(3, "new"), record(4, "a"), record(5, "new")])

    assert all_ids(queue) == [[2, 3, 4]]


def test_what_another_topic_has_proven_counts_for_none_but_itself() -> None:
    queue = waiting(
        record(1, topic="other"), record(2, topic="other"), record(3), record(4)
    )

    assert all_ids(queue) == [[1, 3, 4]]


def test_proofs_end_with_their_producer() -> None:
    queue = waiting(record(1, "a"), record(2, "a"))
    take(queue, 1)
    queue.prove([("t", "a")])

    queue.disprove()

    queue.add([record(3, "a")])
    assert all_ids(queue) == [[2]]


def test_the_proofs_of_a_producer_that_is_gone_stay_its_own() -> None:
    """Its set of topics may still grow, by a late acknowledgement."""
    queue = waiting(record(1), record(2))
    former = queue.proven_topics

    queue.disprove()
    former.add("t")

    assert all_ids(queue) == [[1]]


def test_proven_keys_are_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting_module, "MAX_PROVEN", 2)
    queue = waiting(proven=[])
    queue.prove([("t", "a"), ("t", "b")])
    queue.prove([("t", "c")])
    queue.add([record(n, "a") for n in (4, 5)] + [record(n, "c") for n in (6, 7)])

    assert all_ids(queue) == [[4, 6, 7]]


# One record of a key.


def test_with_one_of_a_key_a_batch_has_one_of_each() -> None:
    queue = waiting(
        record(1, "a"), record(2, "a"), record(3, "b"), max_in_flight_per_key=1
    )

    batch = take(queue)

    assert ids(batch) == [1, 3]
    assert batch is not None
    assert not batch.proves_keys
    assert take(queue) is None


def test_with_one_of_a_key_the_next_waits_until_the_row_is_gone() -> None:
    queue = waiting(record(1, "a"), record(2, "a"), max_in_flight_per_key=1)
    take(queue)

    queue.ended([record(1, "a")])
    queue.prove([("t", "a")])
    assert take(queue) is None

    queue.drop([record(1, "a")])
    assert ids(take(queue)) == [2]


def test_the_same_key_of_two_topics_makes_two_keys() -> None:
    queue = waiting(record(1, topic="x"), record(2, topic="y"), max_in_flight_per_key=1)

    assert all_ids(queue) == [[1, 2]]


# Apart.


def test_a_record_that_has_failed_goes_apart_with_nothing_else_of_its_key() -> None:
    queue = waiting(
        record(1, "a"), record(2, "a", attempts=1), record(3, "a"), record(4, "b")
    )

    assert ids(take(queue)) == [1, 4]
    assert take(queue, under_way=[A]) is None

    queue.ended([])
    batch = take(queue)
    assert batch is not None
    assert (ids(batch), batch.is_apart) == ([2], True)
    assert take(queue) is None

    queue.ended(batch.records)
    batch = take(queue)
    assert batch is not None
    assert (ids(batch), batch.is_apart) == ([3], False)


def test_records_of_several_keys_go_apart_together() -> None:
    queue = waiting(
        record(1, "a", attempts=1),
        record(2, "a", attempts=1),
        record(3, "b", attempts=9),
    )

    assert ids(take(queue)) == [1, 3]


def test_a_record_that_goes_apart_waits_for_earlier_ones_of_its_key() -> None:
    queue = waiting(record(1, "a", attempts=1), record(2, "b"))

    assert ids(take(queue, under_way=[A])) == [2]
    queue.ended([])
    assert ids(take(queue)) == [1]


def test_a_record_that_was_put_back_and_has_failed_before_still_goes_apart() -> None:
    queue = waiting(record(1, "a", attempts=1), record(2, "b"))
    batch = take(queue)
    assert batch is not None
    assert ids(batch) == [1]
    assert ids(take(queue)) == [2], "nothing else has failed before"

    queue.put_back(batch.records)

    batch = take(queue)
    assert batch is not None
    assert (ids(batch), batch.is_apart) == ([1], True)


def test_a_suspect_goes_apart_until_it_is_settled() -> None:
    queue = waiting(record(1, "a"), record(2, "b"))
    queue.suspects.add(1)

    batch = take(queue)
    assert batch is not None
    assert (ids(batch), batch.is_apart) == ([1], True)
    queue.drop(batch.records)
    assert not queue.suspects


def test_a_topic_that_has_refused_records_gets_its_next_ones_apart() -> None:
    queue = waiting(record(1, "a", topic="closed"), record(2, "b"))
    queue.refused_topics.add("closed")

    batch = take(queue)
    assert batch is not None
    assert (ids(batch), batch.is_apart) == ([1], True)
    assert ids(take(queue)) == [2]


def test_a_record_that_went_apart_proves_nothing() -> None:
    queue = waiting(
        record(1, "a", attempts=1), record(2, "a"), record(3, "a"), proven=[]
    )
    batch = take(queue)
    assert batch is not None
    queue.ended(batch.records)

    assert all_ids(queue) == [[2]]


def test_negative_attempts_count_as_none() -> None:
    """Plain SQL may write any number."""
    queue = waiting(record(1)._replace(attempts=-5), record(2))

    batch = take(queue)

    assert batch is not None
    assert (ids(batch), batch.is_apart) == ([1, 2], False)


# What comes back.


def test_records_that_come_back_are_first_again_in_their_order() -> None:
    queue = waiting(*(record(n, "a") for n in range(1, 6)))
    batch = take(queue, 3)
    assert batch is not None

    queue.put_back(batch.records)

    assert all_ids(queue) == [[1, 2, 3, 4, 5]]


def test_a_key_whose_only_record_came_back_may_go_again() -> None:
    queue = waiting(record(1, "a"), record(2, "a"), proven=[])
    batch = take(queue)
    assert batch is not None

    queue.put_back(batch.records)

    assert all_ids(queue) == [[1]]


def test_what_is_removed_is_not_taken() -> None:
    queue = waiting(record(1, "a"), record(2, "b"), record(3, "a"))

    removed = queue.remove(lambda one: one.key == "a")

    assert [one.id for one in removed] == [1, 3]
    assert all_ids(queue) == [[2]]


def test_what_was_sent_stays_known_when_the_queue_is_forgotten() -> None:
    queue = waiting(record(1, "a"), record(2, "a"), record(3, "b"), proven=[])
    sent = take(queue, 1)
    assert sent is not None
    queue.suspects.add(2)
    queue.refused_topics.add("t")

    queue.forget(sent.records)

    assert (queue.of_this_cluster, queue.known) == (0, {1})
    assert (queue.suspects, queue.refused_topics) == (set(), set())
    queue.add([record(2, "a"), record(3, "b")])
    assert all_ids(queue) == [[3]], "the first of its key is still under way"
    queue.ended(sent.records)
    assert all_ids(queue) == [[2]]


# Sizes.


def test_a_batch_has_a_bound_in_bytes_but_takes_one_large_record() -> None:
    values = ["v" * 6, "v" * 4, "v", "v" * 99]
    queue = waiting(*(record(n, value=value) for n, value in enumerate(values)))

    taken = [ids(take(queue, page_bytes=10)) for _ in range(4)]

    assert taken == [[0, 1], [2], [3], []]


def test_a_batch_has_a_bound_in_bytes_of_headers() -> None:
    queue = waiting(*(with_headers(n, size=200) for n in range(5)))

    taken = [ids(take(queue, page_bytes=500)) for _ in range(3)]

    assert taken == [[0, 1], [2, 3], [4]]


def test_a_small_backlog_is_not_measured() -> None:
    queue = waiting(*(record(n, value="v" * 10) for n in range(5)))

    assert ids(take(queue, page_bytes=50)) == [0, 1, 2, 3, 4]


def test_the_size_of_what_is_known_is_counted_down_as_it_leaves() -> None:
    first = [record(n, value="v" * 100) for n in (1, 2)]
    queue = waiting(*first)
    queue.add([record(3, value="v" * 30)])
    queue.know([record(4, value="v" * 7)])
    assert queue.bytes == 237

    queue.drop(first[:1])
    assert queue.bytes == 137
    queue.drop([first[1], record(3)])
    assert queue.bytes == 7
    queue.drop([record(4)])
    assert queue.bytes == 0


# Work that is saved.


def test_nothing_is_looked_through_until_something_has_changed() -> None:
    queue = waiting(record(1, "a", attempts=1))
    looks = []

    def under_way() -> set[OrderingKey]:
        looks.append(1)
        return {A}

    for _ in range(5):
        assert queue.take(9, 0.0, under_way) is None
    assert len(looks) == 1

    queue.ended([])
    queue.take(9, 0.0, under_way)
    assert len(looks) == 2
