"""Batches through a producer that may break, refuse records or fall silent."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_outbox.exceptions import DeliveryFailed, ProducerBroken, RecordPoisoned
from django_outbox.message.record import Record
from django_outbox.relay.engine import Engine
from django_outbox.relay.lease import Trust
from django_outbox.relay.pipeline import REBUILD_PAUSE, REPORT_WAIT, SLICE, Pipeline
from django_outbox.relay.settlement import Settlement
from tests.fakes.settling import settled

from .leading import Leadership, Term
from .manual_producer import PURGED, ManualProducer
from .samples import PARK, record, relay_settings

BROKEN = ProducerBroken("fatal", code="_FATAL")
NO_OFFSET = DeliveryFailed("no offset", code="NO_OFFSET")
TOO_LARGE = RecordPoisoned("batch", code="MSG_SIZE_TOO_LARGE", is_certain=False)
CLOSED = RecordPoisoned("not authorised", code="TOPIC_AUTHORIZATION_FAILED")
A = ("t", "a")


class Line:
    """An engine that leads, its pipeline, and the producers that it builds."""

    def __init__(
        self, *records: Record, is_proven: bool = True, **changes: Any
    ) -> None:
        settings = relay_settings(**changes)
        self.now = 100.0
        self.is_proven = is_proven
        self.leadership = Leadership()
        self.producers: list[ManualProducer] = []
        self.engine = Engine(settings)
        self.engine.begin("id-1")
        self.engine.found(records)
        self.pipeline = Pipeline(
            settings,
            engine=self.engine,
            make_producer=self.make_producer,
            is_trusted=Trust(self.leadership, lambda: self.now),
            clock=lambda: self.now,
        )

    @property
    def producer(self) -> ManualProducer:
        return self.producers[-1]

    def make_producer(self) -> ManualProducer:
        self.producers.append(ManualProducer())
        self.producer.proven_topics |= {"t", "closed"} if self.is_proven else set()
        return self.producer

    def round(self, *, after: float = 0.0) -> None:
        """Send all that may go, and take the reports that have come."""
        self.now += after
        has_more = True
        while has_more:
            has_more = self.pipeline.send("id-1", self.now)
            self.pipeline.serve(is_hurried=has_more)

    def rebuild(self) -> None:
        """Do a round when another producer may be built."""
        self.round(after=REBUILD_PAUSE)

    def settle(self) -> Settlement:
        settlement = self.engine.settlement()
        assert settlement is not None, "nothing was decided"
        self.engine.settled(settled(settlement), now=self.now)
        return settlement

    @property
    def sent(self) -> list[list[int]]:
        """Ids of all that each producer has queued."""
        return [producer.sent for producer in self.producers]


def acknowledged(line: Line) -> list[int]:
    return [record.id for record in line.settle().acknowledged]


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
    line = Line(*(record(n) for n in range(1, 2 * SLICE + 2)))
    assert line.pipeline.send("id-1", line.now)
    line.leadership.term = Term(trusted_until=line.now)

    assert not line.pipeline.send("id-1", line.now)

    assert line.producer.calls == [list(range(1, SLICE + 1))]


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

    line.engine.unblock([key for key, _ in keys])
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
