"""MP/R's decisions, one at a time."""

from __future__ import annotations

import pytest

from django_outbox.exceptions import DeliveryFailed, ProducerBroken, RecordPoisoned
from django_outbox.message.record import KeyToRead
from django_outbox.message.retry import RetryPolicy
from django_outbox.relay.blocked_key import NEVER
from django_outbox.relay.mpr.barrier import READ_AHEAD, Relay
from django_outbox.relay.poison import should_park
from django_outbox.relay.settlement import Settlement
from tests.fakes.settling import settled
from tests.unit.samples import record, with_headers

RETRY = RetryPolicy(backoff=1.0, backoff_max=8.0, attempts=0)
PARK = RetryPolicy(backoff=1.0, backoff_max=8.0, attempts=2)
POISON = RecordPoisoned("no such topic", code="UNKNOWN_TOPIC")


def leading(retry: RetryPolicy = RETRY, *, max_in_flight: int = 100) -> Relay:
    """A relay that leads under the id "me"."""
    relay = Relay(max_in_flight=max_in_flight, page_bytes=500, retry=retry)
    relay.lead("me")
    return relay


def taken(relay: Relay) -> list[int]:
    """Take all that may be produced now; return the ids."""
    ids = []
    while records := relay.take(2):
        ids += [one.id for one in records]
    return ids


def settle(relay: Relay, *, purged: int | None = None, now: float = 0.0) -> Settlement:
    """Carry the pending settlement out, as a table without faults would."""
    settlement = relay.settlement()
    assert settlement is not None
    relay.settled(settled(settlement, purged=purged), now=now)
    return settlement


def test_the_throttle_holds_at_max_in_flight() -> None:
    relay = leading(max_in_flight=2)
    relay.marked([record(1, "a"), record(2, "b"), record(3, "c")])

    assert [1, 2] == taken(relay)
    relay.reported(record(1, "a"), None)
    assert [] == taken(relay)
    settle(relay)
    assert [3] == taken(relay)


def test_the_barrier_is_lowered_by_the_purge_and_not_by_the_acknowledgement() -> None:
    relay = leading()
    relay.marked([record(1, "a"), record(2, "a")])
    taken(relay)

    relay.reported(record(1, "a"), None)
    assert [] == taken(relay)

    settle(relay)
    assert [2] == taken(relay)


def test_a_settlement_carries_the_leader_id_of_its_records() -> None:
    relay = leading()
    relay.marked([record(1)])
    taken(relay)
    relay.stand_down()
    relay.reported(record(1), None)

    assert "me" == settle(relay).leader_id


def test_a_failure_blocks_its_lane_and_no_other() -> None:
    relay = leading()
    relay.marked([record(1, "a"), record(2, "a"), record(3, "b")])
    taken(relay)

    relay.reported(record(1, "a"), DeliveryFailed("timed out", code="_MSG_TIMED_OUT"))
    relay.reported(record(3, "b"), None)
    settle(relay)
    relay.marked([record(4, "a"), record(5, "b")])

    assert [5] == taken(relay)
    assert not relay.must_remark


def test_a_blocked_lane_is_due_after_its_backoff_and_flows_after_its_reset() -> None:
    relay = leading()
    relay.marked([record(1, "a", attempts=1), record(2, "a")])
    taken(relay)
    relay.reported(record(1, "a", attempts=1), DeliveryFailed("no", code="X"))

    assert NEVER == relay.retry_at
    settle(relay, now=10.0)

    assert [] == relay.due(11.9)
    assert [(("t", "a"), 1)] == relay.due(12.0)
    relay.unblock([("t", "a")])
    relay.marked([record(1, "a"), record(2, "a")])
    assert [1] == taken(relay)
    assert NEVER == relay.retry_at


def test_an_unsettled_failure_is_not_due_whatever_the_time() -> None:
    relay = leading()
    relay.marked([record(1)])
    taken(relay)
    relay.reported(record(1), DeliveryFailed("no", code="X"))

    assert [] == relay.due(1e9)


def test_own_records_behind_a_failed_one_of_another_cluster_are_found_again() -> None:
    """Each cluster counts its ids by itself: the failed one may have any."""
    relay = leading()
    foreign = record(900, "a")._replace(cluster_id=1)
    relay.marked([foreign, record(7, "a"), record(8, "a")])
    assert [900] == taken(relay)

    relay.reported(foreign, POISON)
    settle(relay, now=0.0)

    assert [KeyToRead(("t", "a"), 7)] == relay.due(now=1.0)


def test_what_is_shown_of_a_blocked_lane_is_found_again() -> None:
    relay = leading()
    foreign = record(900, "a")._replace(cluster_id=1)
    relay.marked([foreign])
    assert [900] == taken(relay)
    relay.reported(foreign, POISON)
    settle(relay, now=0.0)

    relay.marked([record(7, "a")])

    assert [] == taken(relay)
    assert [KeyToRead(("t", "a"), 7)] == relay.due(now=1.0)


def test_block_key_never_parks() -> None:
    relay = leading(RETRY)
    relay.marked([record(1, attempts=50)])
    taken(relay)

    relay.reported(record(1, attempts=50), POISON)

    assert [] == settle(relay).poisoned


@pytest.mark.parametrize(
    ("attempts", "error", "is_parked"),
    [
        (1, POISON, True),
        (0, POISON, False),
        (1, RecordPoisoned("batch", code="MSG_SIZE", is_certain=False), False),
        (9, DeliveryFailed("timed out", code="_MSG_TIMED_OUT"), False),
    ],
)
def test_park_takes_certain_poison_after_enough_attempts(
    attempts: int, error: DeliveryFailed, is_parked: bool
) -> None:
    relay = leading(PARK)
    relay.marked([record(1, attempts=attempts)])
    taken(relay)

    relay.reported(record(1, attempts=attempts), error)

    assert is_parked == bool(settle(relay).poisoned)


def test_a_parked_record_lets_its_lane_flow_on() -> None:
    relay = leading(PARK)
    relay.marked([record(1, "a", attempts=1), record(2, "a")])
    taken(relay)
    relay.reported(record(1, "a", attempts=1), POISON)
    settle(relay)

    assert [2] == taken(relay)


def test_poison_is_produced_alone_until_it_is_delivered() -> None:
    relay = leading()
    relay.marked([record(1)])
    taken(relay)
    assert not relay.apart
    relay.reported(record(1), POISON)
    settle(relay)

    relay.unblock([("t", "k")])
    relay.marked([record(1), record(2, "b")])
    taken(relay)
    assert {1} == relay.apart
    relay.reported(record(1), None)
    settle(relay)

    assert not relay.apart


def test_a_short_purge_forces_a_remark() -> None:
    relay = leading()
    relay.marked([record(1, "a"), record(2, "b"), record(3, "b")])
    taken(relay)
    relay.reported(record(1, "a"), None)
    relay.reported(record(2, "b"), None)

    settle(relay, purged=1)

    assert relay.must_remark
    assert "1 purged rows" in relay.remark_reason
    assert [] == taken(relay)


def test_a_broken_producer_forces_a_remark_and_counts_no_attempt() -> None:
    relay = leading()
    relay.marked([record(1), record(2, "b")])
    taken(relay)

    relay.reported(record(1), ProducerBroken("fatal", code="_FATAL"))

    assert relay.must_remark
    assert relay.settlement() is None
    assert 0 == relay.failed


def test_nothing_is_awaited_of_records_that_a_broken_producer_did_not_take() -> None:
    relay = leading()
    relay.marked([record(1), record(2, "b"), record(3, "c")])
    first, *rest = relay.take(3)
    relay.reported(first, ProducerBroken("fatal", code="_FATAL"))

    relay.put_back(rest)

    assert (0, 0, 0) == (relay.unreported, relay.in_flight, relay.queued)


def test_a_new_leader_id_forgets_queue_and_blocked_lanes() -> None:
    relay = leading()
    relay.marked([record(1), record(2, "b"), record(3, "b")])
    taken(relay)
    relay.reported(record(1), DeliveryFailed("no", code="X"))
    relay.reported(record(2, "b"), None)
    settle(relay)

    relay.lead("next")

    assert (0, 0, {}) == (relay.in_flight, relay.queued, relay.blocked)
    assert NEVER == relay.retry_at


def test_an_id_is_not_taken_while_something_is_in_flight() -> None:
    relay = leading()
    relay.marked([record(1)])
    taken(relay)

    with pytest.raises(AssertionError, match="nothing is in flight"):
        relay.lead("next")


def test_backoff_doubles_up_to_its_cap() -> None:
    assert [1.0, 2.0, 4.0, 8.0, 8.0] == [RETRY.delay(n) for n in range(1, 6)]
    assert 8.0 == RETRY.delay(30_000)


def test_with_marks_in_memory_a_row_that_was_gone_leads_to_no_new_leader_id() -> None:
    relay = Relay(max_in_flight=10, page_bytes=500, retry=RETRY, marks_in_memory=True)
    relay.lead("id")
    relay.marked([record(1)])
    (one,) = relay.take(2)
    relay.reported(one, None)
    settlement = relay.settlement()
    assert settlement is not None

    relay.settled(settled(settlement, purged=0), now=1.0)

    assert not relay.must_remark
    assert relay.in_flight == 0


def test_records_behind_a_hot_key_leave_room_for_others_up_to_a_bound() -> None:
    relay = leading(max_in_flight=10)
    relay.marked([record(n, "hot") for n in range(1, 10 * READ_AHEAD)])
    taken(relay)

    assert relay.has_room(10)
    relay.marked([record(1000, "hot"), record(1001, "hot")])
    assert not relay.has_room(10)


def test_records_that_may_fly_leave_no_room_for_a_further_page() -> None:
    relay = leading(max_in_flight=10)
    relay.marked([record(n, f"key-{n}") for n in range(1, 4)])

    assert relay.has_room(4)
    assert not relay.has_room(3)


def test_large_values_leave_no_room_until_they_are_settled() -> None:
    relay = leading(max_in_flight=10)
    relay.marked([record(1, value="v" * 501)])
    taken(relay)
    assert not relay.has_room(10)

    relay.reported(record(1, value="v" * 501), None)
    assert not relay.has_room(10)
    settle(relay)
    assert relay.has_room(10)


def test_large_headers_leave_no_room_until_they_are_settled() -> None:
    large = with_headers(1, size=501)
    relay = leading(max_in_flight=10)
    relay.marked([large])
    taken(relay)
    assert not relay.has_room(10)

    relay.reported(large, None)
    settle(relay)
    assert relay.has_room(10)


def test_records_of_which_the_producer_has_told_are_not_awaited() -> None:
    relay = leading(max_in_flight=10)
    relay.marked([record(1, "a"), record(2, "b")])
    taken(relay)
    assert relay.unreported == 2

    relay.reported(record(1, "a"), None)
    assert relay.unreported == 1
    settle(relay)
    assert (relay.unreported, relay.in_flight) == (1, 1)


def pipelined(retry: RetryPolicy = RETRY) -> Relay:
    """A relay that leads, with any number of records of a key in flight."""
    relay = Relay(
        max_in_flight=100, page_bytes=500, retry=retry, marks_in_memory=True, per_key=0
    )
    relay.lead("me")
    relay.marked([record(0, "a")])
    relay.reported(relay.take(1)[0], None)
    settle(relay)
    return relay


TOO_LARGE = RecordPoisoned("batch", code="MSG_SIZE_TOO_LARGE", is_certain=False)
PURGED = DeliveryFailed("given up", code="_PURGE_QUEUE")


def test_a_refused_batch_is_sent_again_apart_and_no_attempt_is_counted() -> None:
    relay = pipelined()
    relay.marked([record(1, "a"), record(2, "a"), record(3, "b")])
    one, three = relay.take(100)[:1], record(3, "b")
    relay.reported(one[0], TOO_LARGE)
    assert relay.is_producer_broken
    for late in (record(2, "a"), three):
        relay.reported(late, PURGED)

    relay.restart()

    assert not relay.is_producer_broken
    assert relay.failed == 0
    assert [1, 3] == taken(relay)
    assert {1} == set(relay.apart)


def test_what_lies_behind_a_failure_is_not_sent_again_before_its_retry() -> None:
    relay = pipelined()
    relay.marked([record(1, "a"), record(2, "a"), record(3, "b")])
    taken(relay)
    relay.reported(record(1, "a"), DeliveryFailed("no", code="NO_OFFSET"))
    relay.reported(record(2, "a"), PURGED)
    relay.reported(record(3, "b"), PURGED)

    relay.restart()

    assert [3] == taken(relay)
    assert relay.failed == 1
    settle(relay, now=0.0)
    assert [KeyToRead(("t", "a"), 1)] == relay.due(now=1.0)


def test_a_retry_waits_for_earlier_records_of_its_key() -> None:
    relay = pipelined()
    relay.marked([record(1, "a"), record(2, "a")])
    taken(relay)
    relay.refused(record(2, "a"), DeliveryFailed("headers", code="HEADER"))
    settle(relay, now=0.0)

    assert [] == relay.due(now=1.0)
    relay.reported(record(1, "a"), None)
    settle(relay)

    assert [KeyToRead(("t", "a"), 2)] == relay.due(now=2.0)


def test_a_topic_that_refuses_is_tried_apart_until_it_takes_a_record() -> None:
    relay = pipelined()
    relay.marked([record(1, "x", topic="closed")])
    taken(relay)
    relay.reported(record(1, "x", topic="closed"), POISON)
    relay.restart()
    settle(relay)

    relay.marked([record(2, "y", topic="closed"), record(3, "z")])
    assert [2, 3] == taken(relay)
    assert {2} == set(relay.apart)
    relay.reported(record(2, "y", topic="closed"), None)
    settle(relay)

    relay.marked([record(4, "v", topic="closed")])
    assert [4] == taken(relay)
    assert not relay.apart


def test_a_process_that_no_longer_leads_sends_nothing_again() -> None:
    relay = pipelined()
    relay.marked([record(1, "a"), record(2, "a")])
    taken(relay)
    relay.stand_down()
    relay.reported(record(1, "a"), PURGED)

    relay.restart()

    assert [] == taken(relay)
    assert (0, 0) == (relay.in_flight, relay.queued)


def test_only_what_is_overdue_in_the_pipeline_is_told() -> None:
    relay = pipelined()
    relay.marked([record(1, "a"), record(2, "b", attempts=1)])
    relay.take(1, now=10.0)
    relay.take(1, now=11.0)
    relay.marked([record(3, "c")])
    relay.take(1, now=12.0)

    assert [1] == [one.id for one in relay.overdue(11.5)]
    assert [1, 3] == [one.id for one in relay.overdue(12.0)]


def test_negative_attempts_count_as_none() -> None:
    """Plain SQL may write any number."""
    poison = RecordPoisoned("no such topic", code="UNKNOWN_TOPIC")
    row = record(1)._replace(attempts=-32768)
    at_once = RetryPolicy(backoff=1.0, backoff_max=8.0, attempts=1)

    assert RETRY.delay(row.attempts + 1) == 1.0
    assert should_park(row, poison, at_once)
    assert not should_park(row, poison, PARK)
