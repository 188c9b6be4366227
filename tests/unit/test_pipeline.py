"""Batches through a producer that may break, refuse records or fall silent."""

from __future__ import annotations

import logging

import pytest

from django_outbox.exceptions import DeliveryFailed, ProducerBroken, RecordPoisoned
from django_outbox.relay.dispatcher import REPORT_WAIT
from django_outbox.relay.pipeline import APART_PAUSE, MAX_BATCH_RECORDS, REBUILD_PAUSE
from django_outbox.relay.window import MIN_WINDOW_RECORDS
from tests.fakes.settling import settled

from .leading import Term
from .pipeline_bench import Line, acknowledged
from .samples import record

BROKEN = ProducerBroken("fatal", code="_FATAL")
LATE = DeliveryFailed("timed out", code="_MSG_TIMED_OUT")
NO_CLIENT = ProducerBroken("Cannot create a Kafka client.", code="NO_CLIENT")
NO_OFFSET = DeliveryFailed("no offset", code="NO_OFFSET")
A = ("t", "a")


def test_what_is_acknowledged_is_settled() -> None:
    line = Line(record(1, "a"), record(2, "a"), record(3, "b"))
    line.round()
    assert line.sent == [[1, 2, 3]]
    assert line.producer.leader_ids == {"id-1"}

    line.producer.ack()
    line.round()

    assert acknowledged(line) == [1, 2, 3]
    assert line.engine.is_idle


def test_the_lease_is_checked_before_each_batch() -> None:
    line = Line(*(record(n) for n in range(1, 2 * MAX_BATCH_RECORDS + 2)))
    assert line.pipeline.send("id-1", line.now)
    line.leadership.term = Term(trusted_until=line.now)

    assert not line.pipeline.send("id-1", line.now)

    assert line.producer.calls == [list(range(1, MAX_BATCH_RECORDS + 1))]


def test_nothing_is_sent_under_another_leader_id() -> None:
    line = Line(record(1))
    line.leadership.term = Term("id-2")
    line.round()

    assert line.sent == [[]]


def test_nothing_is_sent_while_a_new_leader_id_is_wanted() -> None:
    line = Line(record(1), record(2))
    line.engine.refresh("a test")
    line.engine.waiting.add([record(3)])
    line.round()

    assert line.producers == []


def test_no_producer_is_built_while_there_is_nothing_to_send() -> None:
    line = Line()
    line.round()

    assert line.producers == []


def test_a_wait_for_reports_is_short_and_none_in_a_hurry() -> None:
    line = Line(record(1))
    line.round()
    line.pipeline.serve(is_hurried=True)

    assert line.producer.waits[-2:] == [REPORT_WAIT, 0.0]


def test_no_more_is_under_way_than_kafka_takes_in_time() -> None:
    ids = range(1, MIN_WINDOW_RECORDS + MAX_BATCH_RECORDS + 1)
    line = Line(*(record(n) for n in ids))
    line.round()
    assert line.sent == [[*range(1, MIN_WINDOW_RECORDS + 1)]]

    line.producer.ack()
    line.round()
    line.round()
    assert line.sent == [[*ids]]


# A full queue.


def test_of_a_batch_that_is_taken_in_part_the_rest_goes_next_and_in_order() -> None:
    line = Line(*(record(n, "ab"[n % 2]) for n in range(1, 7)))
    line.pipeline.send("id-0", line.now)
    line.producer.room = 4
    line.round()
    assert line.producer.calls == [[1, 2, 3, 4]]
    assert line.engine.under_way == 4

    line.producer.room = 100
    line.round()
    assert line.producer.calls == [[1, 2, 3, 4], [5, 6]]
    line.producer.ack()
    line.round()
    assert acknowledged(line) == [1, 2, 3, 4, 5, 6]


def test_a_full_queue_takes_nothing_and_nothing_is_lost() -> None:
    line = Line(record(1, "a"), record(2, "b"))
    line.pipeline.send("id-0", line.now)
    line.producer.room = 0
    line.round()
    assert (line.sent, line.engine.under_way) == ([[]], 0)

    line.producer.room = 100
    line.round()
    assert line.sent == [[1, 2]]


# A record that is refused before it is sent.


def test_a_record_that_is_not_queued_blocks_its_key_and_the_others_go() -> None:
    line = Line(*(record(n, "abab"[n - 1]) for n in (1, 2, 3, 4)))
    line.pipeline.send("id-0", line.now)
    line.producer.refused[2] = DeliveryFailed("headers", code="HEADER")
    line.round()

    assert line.sent == [[1, 3]]
    assert list(line.engine.blocked) == [("t", "b")]
    line.producer.ack()
    line.round()
    assert not line.producer.is_closed
    assert acknowledged(line) == [1, 3]


def test_a_record_that_may_be_too_large_goes_apart_at_once() -> None:
    line = Line(*(record(n, f"key-{n}") for n in (1, 2, 3)))
    line.pipeline.send("id-0", line.now)
    line.producer.refused[2] = RecordPoisoned("large", code="SIZE", is_certain=False)
    assert line.pipeline.send("id-1", line.now)
    line.producer.refused.clear()
    line.round()

    assert sorted(line.producer.sent) == [1, 2, 3]
    assert line.producer.apart == [2]
    assert line.engine.failed == 0


def test_while_there_is_no_client_no_record_is_at_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A certificate may be replaced just now."""
    line = Line(*(record(n, f"k{n}") for n in (1, 2, 3)))
    line.refused = dict.fromkeys((1, 2, 3), NO_CLIENT)
    for _ in range(4):
        line.rebuild()
    assert line.sent == [[]] * 4
    assert (line.engine.failed, line.engine.under_way) == (0, 0)
    (told,) = caplog.messages
    assert told == "Nothing can be sent: Cannot create a Kafka client."

    line.refused.clear()
    line.rebuild()
    line.producer.ack()
    line.round()
    assert acknowledged(line) == [1, 2, 3]


def test_a_record_without_a_client_of_its_own_stops_no_other() -> None:
    line = Line(*(record(n, f"k{n}") for n in (1, 2)))
    line.round()
    line.refused = {9: NO_CLIENT}
    line.producer.refused |= line.refused
    line.engine.found([record(9, "bad", attempts=1), record(10, "k10")])
    line.round()
    assert not line.producer.is_closed
    assert line.sent == [[1, 2, 10]]
    assert line.pipeline.wait(line.now) == line.now + APART_PAUSE

    line.producer.refused.clear()
    line.producer.ack()
    line.round()
    assert line.producer.apart == []
    line.leadership.term = Term(trusted_until=line.now + 2 * APART_PAUSE)
    line.round(after=APART_PAUSE)
    assert line.producer.apart == [9]
    assert line.engine.failed == 0


# One record of a key.


def test_with_one_record_of_a_key_a_producer_outlives_a_failure() -> None:
    line = Line(record(1, "a"), record(2, "b"), record(3, "a"), max_in_flight_per_key=1)
    line.round()
    line.producer.fail(NO_OFFSET, 1)
    line.producer.ack(2)
    line.round()

    assert not line.producer.is_closed
    assert list(line.engine.blocked) == [A]
    assert acknowledged(line) == [2]
    assert line.sent == [[1, 2]]


def test_with_one_record_of_a_key_a_broken_producer_costs_no_attempt() -> None:
    line = Line(record(1, "a"), record(2, "b"), max_in_flight_per_key=1)
    line.round()
    line.producer.ack(1)
    line.producer.fail(BROKEN, 2)
    line.round()
    line.rebuild()

    assert acknowledged(line) == [1]
    assert line.sent == [[1, 2], [2]]
    assert line.engine.failed == 0


# The delivery time-out.


def test_when_kafka_is_silent_all_is_sent_again_and_nothing_has_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    line = Line(record(1, "a"), record(2, "b"))
    for _ in range(40):
        line.round(after=0.3)

    assert len(line.producers) > 2
    assert all(producer.is_closed for producer in line.producers[:-1])
    assert all(sent == [1, 2] for sent in line.sent)
    assert line.engine.failed == 0
    told = [line for line in caplog.messages if "has acknowledged nothing" in line]
    assert len(told) == 1


def test_a_time_out_apart_does_not_say_that_kafka_acknowledges() -> None:
    """Else all other records would have failed, too."""
    others = [record(n, f"k{n}") for n in range(1, 6)]
    line = Line(*others, record(9, "bad", attempts=1))
    line.round()
    assert line.producer.apart == [9]

    line.round(after=4.9)
    line.producer.fail(LATE, 9)
    line.round()
    line.round(after=0.3)
    line.rebuild()

    assert list(line.engine.blocked) == [("t", "bad")]
    assert line.engine.failed == 1
    assert line.sent == [[9, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5]]


def test_an_outage_that_is_over_is_told_again_the_next_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    line = Line(record(1, "a"))
    for _ in range(60):
        line.round(after=0.3)
    line.producer.ack()
    line.round()
    line.engine.found([record(2, "a")])
    for _ in range(60):
        line.round(after=0.3)

    told = [line for line in caplog.messages if "has acknowledged nothing" in line]
    assert len(told) == 2


@pytest.mark.parametrize("comes_at_last", [False, True])
def test_only_what_is_late_has_failed_while_others_are_acknowledged(
    comes_at_last: bool,
) -> None:
    """It may be acknowledged after all, while its producer is being closed."""
    line = Line(record(1, "late"))
    line.round()
    first = line.producer
    first.late |= {1} if comes_at_last else set()
    for number in range(2, 22):
        line.engine.found([record(number, f"k{number}")])
        line.round(after=0.3)
        if first.is_closed:
            break
        first.ack(number)
    line.rebuild()

    assert first.is_closed
    has_failed = not comes_at_last
    assert list(line.engine.blocked) == [("t", "late")] * has_failed
    assert line.engine.failed == has_failed
    assert line.producer is not first
    assert 1 not in line.producer.sent
    assert line.settle().acknowledged[0].id == (1 if comes_at_last else 2)


@pytest.mark.parametrize(
    ("dead_topic", "most_producers"), [("another topic", 2), ("t", 12)]
)
def test_a_partition_that_acknowledges_nothing_delays_no_other_key(
    dead_topic: str, most_producers: int
) -> None:
    """Each second a new key comes for it, of which no record has failed yet."""
    line = Line(is_proven=False)
    dead: set[int] = set()
    delivered = 0
    for tenth in range(1, 601):
        line.engine.found([record(2 * tenth, "alive")])
        if tenth % 10 == 0:
            dead.add(2 * tenth + 1)
            line.engine.found([record(2 * tenth + 1, f"k{tenth}", topic=dead_topic)])
        line.round(after=0.1)
        for producer in line.producers:
            alive = [id for id in producer.unacknowledged if id not in dead]
            if alive:
                producer.ack(*alive)
        line.round()
        if settlement := line.engine.settlement():
            line.engine.settled(settled(settlement), now=line.now)
            delivered += len(settlement.acknowledged)

    assert delivered > 500
    assert len(line.producers) <= most_producers


def test_a_silent_topic_with_many_keys_leaves_room_for_all_others() -> None:
    """More of its records than the window has are under way, until they time out."""
    line = Line(is_proven=False, max_in_flight=1000)
    number, delivered, sent_at = 0, 0, dict[int, float]()
    for tenth in range(1, 301):
        for topic in ["dead"] * 10 + ["t"] * 10:
            number += 1
            sent_at[number] = line.now
            line.engine.found([record(number, f"k{number}", topic=topic)])
        line.round(after=0.1)
        for producer in line.producers:
            for id in producer.unacknowledged:
                if (id - 1) % 20 >= 10:
                    producer.ack(id)
                elif id in producer.apart and line.now > sent_at[id] + 6:
                    producer.fail(LATE, id)
        line.round()
        if settlement := line.engine.settlement():
            line.engine.settled(settled(settlement), now=line.now)
            if tenth > 100:
                delivered += len(settlement.acknowledged)

    assert delivered > 1900


def test_a_late_record_that_was_refused_keeps_its_own_error() -> None:
    """A batch ends when each of its records has a report, or with its producer."""
    line = Line(record(1, "a"), record(2, "b"))
    line.round()
    first = line.producer
    first.fail(NO_OFFSET, 1)
    for number in range(3, 30):
        line.engine.found([record(number, f"k{number}")])
        line.round(after=0.3)
        if first.is_closed:
            break
        first.ack(number)

    errors = [failure.error.split(":")[0] for failure in line.settle().failed]

    assert errors == ["NO_OFFSET", "_MSG_TIMED_OUT"]


def test_what_goes_apart_is_watched_by_its_client() -> None:
    line = Line(record(1, attempts=1))
    for _ in range(30):
        line.round(after=0.3)

    assert line.sent == [[1]]


# The end of a leadership.


def test_without_a_proven_term_what_is_under_way_is_given_up() -> None:
    line = Line(record(1), record(2))
    line.round()
    line.producer.late = {1}
    line.engine.stand_down()

    line.pipeline.stop(is_proven=False)

    assert line.producer.is_closed
    assert line.engine.under_way == 0
    assert acknowledged(line) == [1]
    assert not line.engine.waiting


def test_an_idle_producer_is_served_and_ends_with_the_term() -> None:
    """It keeps what nobody asks for: what its client says of an outage."""
    line = Line(record(1))
    line.round()
    line.producer.ack()
    line.round()
    line.producer.waits.clear()

    line.pipeline.serve(is_hurried=False)
    assert line.producer.waits == [0.0]

    line.engine.stand_down()
    line.pipeline.stop(is_proven=True)
    assert not line.producer.is_closed
    line.pipeline.stop(is_proven=False)
    assert line.producer.is_closed


def test_in_a_proven_term_what_is_under_way_is_waited_for() -> None:
    line = Line(record(1))
    line.round()
    line.engine.stand_down()
    line.pipeline.stop(is_proven=True)
    assert not line.producer.is_closed

    line.producer.ack()
    line.pipeline.serve(is_hurried=False)

    assert acknowledged(line) == [1]


def test_close_drops_the_producer() -> None:
    line = Line(record(1))
    line.pipeline.close()
    line.round()
    line.pipeline.close()

    assert line.producer.is_closed
    assert line.pipeline.wait(line.now) == line.now + REBUILD_PAUSE
