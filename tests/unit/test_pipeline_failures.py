"""A failure ends the producer: what goes again, and what is at fault."""

from __future__ import annotations

from django_outbox.exceptions import DeliveryFailed, ProducerBroken, RecordPoisoned
from django_outbox.relay.pipeline import REBUILD_PAUSE

from .manual_producer import PURGED
from .pipeline_bench import Line, acknowledged
from .samples import PARK, record

BROKEN = ProducerBroken("fatal", code="_FATAL")
NO_OFFSET = DeliveryFailed("no offset", code="NO_OFFSET")
TOO_LARGE = RecordPoisoned("batch", code="MSG_SIZE_TOO_LARGE", is_certain=False)
CLOSED = RecordPoisoned("not authorised", code="TOPIC_AUTHORIZATION_FAILED")
A = ("t", "a")


# A failure ends the producer.


def test_what_a_broken_producer_has_not_delivered_goes_again_in_order() -> None:
    line = Line(*(record(n, "ab"[n % 2]) for n in range(1, 6)))
    line.round()
    line.engine.found([record(6, "a"), record(7, "b")])
    line.round()
    line.producer.ack(1, 4)
    line.producer.fail(BROKEN, 2, 3, 5)
    line.round()
    assert line.producers[0].is_closed
    assert acknowledged(line) == [1, 4]

    line.rebuild()

    assert line.sent == [[1, 2, 3, 4, 5, 6, 7], [2, 3, 5, 6, 7]]
    assert line.engine.failed == 0
    assert not line.engine.must_refresh


def test_the_next_producer_comes_after_a_pause() -> None:
    line = Line(record(1))
    line.round()
    line.producer.fail(BROKEN)
    line.round()
    assert line.pipeline.wait(line.now) == line.now + REBUILD_PAUSE

    line.round(after=REBUILD_PAUSE - 0.01)
    assert len(line.producers) == 1
    line.round(after=0.01)
    assert line.sent == [[1], [1]]


def test_a_producer_that_breaks_while_it_queues_ends_what_it_has_queued() -> None:
    line = Line(*(record(n, f"key-{n}") for n in (1, 2, 3)))
    line.pipeline.send("id-0", line.now)
    line.producer.refused[2] = BROKEN
    line.round()
    assert line.sent == [[1]]
    assert line.producer.is_closed

    line.rebuild()

    assert line.sent == [[1], [1, 2, 3]]
    assert line.engine.failed == 0


def test_a_batch_that_was_delivered_behind_the_failed_one_is_not_sent_again() -> None:
    """Of other keys: the producer keeps the order of each partition."""
    line = Line(record(1, "a"))
    line.round()
    line.engine.found([record(2, "b")])
    line.round()
    line.producer.ack(2)
    line.round()
    assert line.engine.settlement() is None

    line.producer.fail(NO_OFFSET, 1)
    line.round()
    line.rebuild()

    assert acknowledged(line) == [2]
    assert line.sent == [[1, 2]]
    assert list(line.engine.blocked) == [A]


def test_what_lies_behind_a_failure_stays_in_the_table_until_the_retry() -> None:
    line = Line(record(1, "a"), record(2, "a"), record(3, "b"), record(4, "a"))
    line.round()
    line.producer.fail(NO_OFFSET, 1)
    line.producer.fail(PURGED)
    line.round()
    line.rebuild()

    assert line.sent == [[1, 2, 3, 4], [3]]
    assert line.engine.failed == 1
    assert [failure.record.id for failure in line.settle().failed] == [1]
    assert line.engine.waiting.known == {3}


def test_a_batch_whose_outcome_matches_no_record_is_sent_again_as_a_whole() -> None:
    """Which record was refused, the report does not tell."""
    line = Line(*(record(n, "ab"[n % 2]) for n in range(1, 5)))
    line.round()
    line.producer.fail(DeliveryFailed("no record matches", code="_FAIL"))
    line.round()
    assert line.settle().acknowledged == []
    keys = line.engine.due(line.now + 1.0)
    assert sorted(keys) == [(("t", "a"), 2), (("t", "b"), 1)]

    line.engine.blocked.unblock([key for key, _ in keys])
    line.engine.found([record(n, "ab"[n % 2]) for n in range(1, 5)])
    line.rebuild()

    assert line.producer.sent == [1, 2, 3, 4]


def test_each_producer_proves_its_partitions_again() -> None:
    line = Line(*(record(n, "a") for n in (1, 2, 3)), is_proven=False)
    line.round()
    assert line.sent == [[1]]
    line.producer.ack()
    line.round()
    line.round()
    assert line.sent == [[1, 2, 3]]

    line.producer.fail(BROKEN)
    line.round()
    line.rebuild()

    assert line.sent == [[1, 2, 3], [2]]


def test_a_key_that_was_never_acknowledged_is_proven_by_the_next_producer() -> None:
    line = Line(record(1, "a"), record(2, "a"), is_proven=False)
    line.round()
    line.producer.fail(BROKEN)
    line.round()
    line.rebuild()
    assert line.sent == [[1], [1]]

    line.producer.ack()
    line.round()
    line.round()

    assert line.sent == [[1], [1, 2]]


def test_when_each_partition_of_a_topic_is_proven_any_key_may_go() -> None:
    line = Line(record(1, "a"), is_proven=False)
    line.round()
    line.producer.proven_topics.add("t")
    line.producer.ack()
    line.round()
    line.engine.found([record(2, "new"), record(3, "new")])

    line.round()

    assert line.sent == [[1, 2, 3]]


# Poison.


def test_a_refused_batch_is_sent_again_apart_and_no_attempt_is_counted() -> None:
    line = Line(record(1, "a"), record(2, "a"), record(3, "b"))
    line.round()
    line.producer.fail(TOO_LARGE, 1, 2)
    line.producer.fail(PURGED)
    line.round()
    line.rebuild()

    assert line.engine.failed == 0
    assert line.producer.calls == [[1], [3]]
    assert line.producer.apart == [1]
    line.producer.ack()
    line.round()
    line.round()
    assert (line.producer.calls, line.producer.apart) == ([[1], [3], [2]], [1, 2])


def test_a_record_that_is_refused_apart_breaks_nothing() -> None:
    line = Line(record(1, "a", attempts=1), record(2, "b", attempts=1), record(3, "c"))
    line.round()
    assert line.producer.calls == [[1, 2], [3]]

    line.producer.fail(CLOSED, 1)
    line.producer.ack(2)
    line.round()

    assert not line.producer.is_closed
    settlement = line.settle()
    assert [failure.record.id for failure in settlement.failed] == [1]
    assert [record.id for record in settlement.acknowledged] == [2]


def test_a_record_that_is_lost_apart_with_its_client_goes_apart_again() -> None:
    line = Line(record(1, "a", attempts=1), record(2, "b"))
    line.round()
    line.producer.fail(BROKEN)
    line.round()
    line.rebuild()

    assert line.sent == [[1, 2], [1, 2]]
    assert line.producer.apart == [1]
    assert line.engine.failed == 0


def test_an_apart_record_waits_until_earlier_ones_of_its_key_have_an_outcome() -> None:
    line = Line(record(1, "a"), record(2, "b"))
    line.round()
    line.engine.found([record(3, "a", attempts=1), record(4, "a")])
    line.round()
    assert line.sent == [[1, 2]]

    line.producer.ack(1)
    line.round()
    line.round()
    assert line.sent == [[1, 2]], "its batch has not ended"
    line.producer.ack(2)
    line.round()
    line.round()
    assert (line.sent, line.producer.apart) == ([[1, 2, 3]], [3])


def test_a_topic_that_refuses_is_tried_apart_until_it_takes_a_record() -> None:
    line = Line(record(1, "x", topic="closed"))
    line.round()
    line.producer.fail(CLOSED)
    line.round()
    line.settle()
    line.engine.found([record(2, "y", topic="closed"), record(3, "z")])
    line.rebuild()
    assert (line.producer.sent, line.producer.apart) == ([2, 3], [2])

    line.producer.ack()
    line.round()
    line.engine.found([record(4, "v", topic="closed")])
    line.round()

    assert (line.producer.sent, line.producer.apart) == ([2, 3, 4], [2])


def test_followers_of_a_record_that_is_to_be_parked_wait_until_it_is() -> None:
    line = Line(record(1, "a", attempts=1), record(2, "a"), retry=PARK)
    line.round()
    line.producer.fail(CLOSED)
    line.round()
    line.round()
    assert line.sent == [[1]]

    assert [failure.record.id for failure in line.settle().poisoned] == [1]
    line.round()

    assert line.sent == [[1, 2]]
