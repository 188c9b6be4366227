"""The ledger relay's decisions, one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from django_outbox.exceptions import DeliveryFailed, RecordPoisoned
from django_outbox.message.record import KeyToRead, Record
from django_outbox.message.retry import RetryPolicy
from django_outbox.relay.ledger.ledger_relay import LedgerRelay
from django_outbox.relay.ledger.page_request import Page, PageRequest
from django_outbox.relay.ledger.ports import Fault
from django_outbox.relay.settlement import Settlement
from tests.fakes.settling import settled
from tests.unit.samples import record, with_headers

RETRY = RetryPolicy(backoff=1.0, backoff_max=8.0, attempts=0)
PARK = RetryPolicy(backoff=1.0, backoff_max=8.0, attempts=2)
POISON = RecordPoisoned("no such topic", code="UNKNOWN_TOPIC")
SOMEBODY = RecordPoisoned("too large", code="MSG_SIZE", is_certain=False)
LATE = DeliveryFailed("timed out", code="_MSG_TIMED_OUT")


def relay_with(
    *records: Record,
    batch: int = 4,
    page_bytes: int = 500,
    retry: RetryPolicy = RETRY,
) -> LedgerRelay:
    """A relay that has read these rows."""
    relay = LedgerRelay(batch=batch, page_bytes=page_bytes, retry=retry)
    read(relay, *records)
    return relay


def page(
    records: Sequence[Record] = (),
    *,
    limit: int = 9,
    keys: Sequence[KeyToRead] = (),
    of_keys: Sequence[Record] = (),
    unseen: int = 0,
) -> Page:
    """The answer to a request, without keys for the next rows."""
    request = PageRequest(run=1, limit=0 if keys else limit, keys=keys)
    return Page(request=request, records=records, of_keys=of_keys, unseen=unseen)


def read(relay: LedgerRelay, *records: Record, limit: int = 100) -> None:
    relay.begin_read()
    relay.found(page(records, limit=limit), 0.0)


def read_held(relay: LedgerRelay, now: float, *records: Record) -> list[int]:
    """Look at the keys that are due; return from which ids on."""
    keys_to_read = relay.due(now)
    relay.begin_read()
    relay.found(page(keys=keys_to_read, of_keys=records), now)
    return [low for _, low in keys_to_read]


def batch_of(relay: LedgerRelay) -> list[int]:
    return [one.id for one in relay.next_batch()[0]]


def commit(relay: LedgerRelay, now: float = 0.0) -> list[int]:
    """Commit the next batch; return its ids."""
    batch, _ = relay.next_batch()
    relay.committed(batch, "me", now)
    return [one.id for one in batch]


def abort(relay: LedgerRelay, **errors: DeliveryFailed) -> list[int]:
    """Abort the next batch, by faults of the records `r1`, `r2` ...; its ids."""
    batch, _ = relay.next_batch()
    faults = [Fault(r, errors[f"r{r.id}"]) for r in batch if f"r{r.id}" in errors]
    relay.aborted(batch, faults, "me")
    return [one.id for one in batch]


def settle(relay: LedgerRelay, now: float = 0.0) -> Settlement:
    """Carry out what was decided."""
    settlement = relay.settlement()
    assert settlement is not None
    relay.settled(settled(settlement), now)
    return settlement


def ids(records: Sequence[Record]) -> list[int]:
    return [one.id for one in records]


# Batches.


def test_a_batch_is_the_head_of_what_was_read_and_stays_until_its_end() -> None:
    relay = relay_with(*(record(n) for n in range(1, 7)))

    assert batch_of(relay) == [1, 2, 3, 4]
    assert commit(relay) == [1, 2, 3, 4]
    assert commit(relay) == [5, 6]
    assert batch_of(relay) == []


def test_one_lane_fills_a_whole_batch() -> None:
    relay = relay_with(*(record(n, "hot") for n in (1, 2, 3)))

    assert commit(relay) == [1, 2, 3]


def test_a_batch_has_a_bound_in_bytes_but_takes_one_large_record() -> None:
    relay = relay_with(
        record(1, value="v" * 6),
        record(2, value="v" * 4),
        record(3, value="v" * 1),
        record(4, value="v" * 99),
        page_bytes=10,
    )

    assert [commit(relay), commit(relay), commit(relay)] == [[1, 2], [3], [4]]


def test_large_values_leave_no_room_until_they_are_purged() -> None:
    relay = LedgerRelay(batch=100, page_bytes=500, retry=RETRY)
    read(relay, *(record(n, value="v" * 100) for n in range(5)))
    assert relay.has_room

    read(relay, record(5, value="v"))
    assert not relay.has_room

    commit(relay)
    assert not relay.has_room
    settle(relay)
    assert relay.has_room


def test_large_headers_leave_no_room_until_they_are_purged() -> None:
    relay = LedgerRelay(batch=100, page_bytes=500, retry=RETRY)
    read(relay, with_headers(1, size=501))
    assert not relay.has_room

    commit(relay)
    settle(relay)
    assert relay.has_room


def test_a_batch_has_a_bound_in_bytes_of_headers() -> None:
    relay = relay_with(*(with_headers(n, size=200) for n in range(5)), page_bytes=500)

    assert [commit(relay), commit(relay), commit(relay)] == [[0, 1], [2, 3], [4]]


def test_there_is_room_for_two_batches() -> None:
    relay = relay_with(*(record(n) for n in range(7)))
    assert relay.has_room

    read(relay, record(7))

    assert not relay.has_room


def test_a_row_that_is_read_twice_is_sent_once() -> None:
    relay = relay_with(record(1), record(2))
    read(relay, record(2), record(3))

    assert commit(relay) == [1, 2, 3]
    read(relay, record(3))
    assert batch_of(relay) == []


def test_a_row_that_is_purged_while_a_look_is_under_way_is_not_sent_again() -> None:
    relay = relay_with(record(1))
    commit(relay)
    relay.begin_read()
    settle(relay)

    relay.found(page([record(1), record(2)]), 0.0)

    assert batch_of(relay) == [2]


# What is committed.


def test_what_is_committed_is_unpurged_until_the_table_says_so() -> None:
    relay = relay_with(record(1), record(2), batch=1)
    commit(relay)
    first = relay.settlement()
    assert first is not None
    commit(relay)
    assert ids(relay.unpurged) == [1, 2]

    relay.settled(settled(first), 0.0)
    assert ids(relay.unpurged) == [2]
    settle(relay)
    assert relay.unpurged == []


def test_what_a_ledger_lists_is_to_be_purged_and_is_listed_on() -> None:
    relay = LedgerRelay(batch=4, page_bytes=500, retry=RETRY)
    relay.inherit([record(1), record(2)], "me")

    assert ids(relay.unpurged) == [1, 2]
    settlement = settle(relay)
    assert ids(settlement.acknowledged) == [1, 2]
    assert settlement.leader_id == "me"
    assert relay.unpurged == []


def test_a_new_run_forgets_all_but_what_waits_to_be_purged() -> None:
    relay = relay_with(record(1), record(2, "bad"), record(3), batch=2)
    abort(relay, r2=LATE)
    commit(relay)
    settlement = relay.settlement()
    assert settlement is not None

    relay.forget()

    assert batch_of(relay) == []
    assert not relay.blocked
    assert ids(relay.unpurged) == [1, 3]
    read(relay, *(record(n) for n in (1, 2, 3)))
    # 2 has failed, and the table has not noted it yet.
    assert batch_of(relay) == []
    relay.settled(settled(settlement), 0.0)
    assert relay.in_flight == 0


def test_what_is_decided_is_handed_out_once() -> None:
    relay = relay_with(record(1))
    assert relay.settlement() is None
    commit(relay)

    assert relay.settlement() is not None
    assert relay.settlement() is None
    assert relay.in_flight == 1


# What fails.


def test_an_abort_by_nobodys_fault_leaves_the_batch_as_it_is() -> None:
    relay = relay_with(record(1), record(2))
    abort(relay)

    assert batch_of(relay) == [1, 2]
    assert relay.settlement() is None
    assert relay.failed == 0


def test_an_uncertain_fault_halves_the_batch_down_to_one_record() -> None:
    relay = relay_with(*(record(n) for n in range(1, 9)), batch=8)

    sizes = [len(abort(relay, r1=SOMEBODY)) for _ in range(4)]

    assert sizes == [8, 4, 2, 1]
    assert relay.settlement() is None


def test_a_batch_grows_again_once_it_is_committed() -> None:
    relay = relay_with(*(record(n) for n in range(1, 12)), batch=8)
    for _ in range(2):
        abort(relay, r1=SOMEBODY)

    assert [len(commit(relay)) for _ in range(3)] == [2, 4, 5]


def test_a_failed_record_holds_its_lane_and_no_other() -> None:
    relay = relay_with(record(1, "a"), record(2, "b"), record(3, "a"))
    abort(relay, r1=LATE)
    read(relay, record(4, "a"), record(5, "b"))

    assert commit(relay) == [2, 5]
    assert set(relay.blocked) == {("t", "a")}
    settlement = settle(relay)
    assert [f.record.id for f in settlement.failed] == [1]
    assert settlement.failed[0].error == "_MSG_TIMED_OUT: timed out"


def test_a_record_before_the_failed_one_in_its_lane_is_read_again_too() -> None:
    relay = relay_with(record(1, "a"), record(2, "a"), record(3, "a"))
    abort(relay, r2=LATE)
    settle(relay, now=10.0)

    assert batch_of(relay) == []
    assert read_held(relay, 11.0, record(1, "a"), record(2, "a")) == [1]
    assert commit(relay, 11.0) == [1]


def test_a_held_lane_is_due_after_its_backoff_counted_from_the_note() -> None:
    relay = relay_with(record(1, attempts=1))
    abort(relay, r1=LATE)
    assert relay.due(1e9) == []

    settle(relay, now=10.0)

    assert relay.due(11.9) == []
    assert [low for _, low in relay.due(12.0)] == [1]
    assert relay.blocked_keys.retry_at == 12.0


def test_a_held_lane_is_probed_with_one_record_and_then_follows_in_order() -> None:
    relay = relay_with(*(record(n, "a") for n in (1, 2, 3)))
    abort(relay, r1=LATE)
    settle(relay, now=10.0)
    read(relay, record(4, "b"))
    read_held(relay, 11.0, *(record(n, "a", attempts=1) for n in (1, 2, 3)))

    assert relay.next_batch()[1]
    assert commit(relay, 11.0) == [1]
    read(relay, record(5, "a"), record(6, "b"))
    assert read_held(relay, 11.0, *(record(n, "a") for n in (2, 3, 5))) == [2]
    assert commit(relay, 11.0) == [4, 6, 2, 3]
    assert commit(relay, 11.0) == [5]
    read_held(relay, 11.0)
    assert not relay.blocked


def test_a_held_lane_is_read_on_from_the_first_gap() -> None:
    """A row may be committed there, before those that were read."""
    relay = relay_with(record(1, "a"))
    abort(relay, r1=LATE)
    settle(relay, now=10.0)
    read_held(relay, 11.0, record(1, "a", attempts=1))
    assert commit(relay, 11.0) == [1]

    keys_to_read = relay.due(11.0)
    found = [record(2, "a"), record(5, "a")]
    relay.found(page(keys=keys_to_read, of_keys=found, unseen=3), 11.0)

    assert relay.due(11.0) == [KeyToRead(("t", "a"), 3)]
    relay.found(page(keys=keys_to_read, of_keys=[record(9, "a")], unseen=12), 11.0)
    assert relay.due(11.0) == [KeyToRead(("t", "a"), 10)]


def test_a_probe_that_fails_holds_its_lane_for_longer() -> None:
    relay = relay_with(record(1, "a"))
    abort(relay, r1=LATE)
    settle(relay, now=10.0)
    read_held(relay, 11.0, record(1, "a", attempts=1))
    abort(relay, r1=LATE)
    settle(relay, now=20.0)

    assert relay.due(21.9) == []
    assert len(relay.due(22.0)) == 1


def test_only_the_first_fault_of_a_lane_counts() -> None:
    relay = relay_with(record(1, "a"), record(2, "a"), record(3, "b"))
    abort(relay, r1=LATE, r2=LATE, r3=LATE)

    assert [f.record.id for f in settle(relay).failed] == [1, 3]
    assert relay.failed == 2


def test_a_certain_fault_counts_and_an_uncertain_one_beside_it_does_not() -> None:
    relay = relay_with(record(1, "a"), record(2, "b"))
    abort(relay, r1=POISON, r2=SOMEBODY)

    assert [f.record.id for f in settle(relay).failed] == [1]
    assert batch_of(relay) == [2]


def test_poison_is_parked_after_enough_attempts_and_its_lane_flows_on() -> None:
    relay = relay_with(record(1, "a", attempts=1), record(2, "a"), retry=PARK)
    abort(relay, r1=POISON)

    settlement = settle(relay)
    assert [f.record.id for f in settlement.poisoned] == [1]
    assert settlement.failed == []
    assert commit(relay) == [2]


def test_poison_is_tried_again_before_it_is_parked() -> None:
    relay = relay_with(record(1, "a"), record(2, "a"), retry=PARK)
    abort(relay, r1=POISON)
    assert settle(relay, now=10.0).poisoned == []
    read_held(relay, 11.0, record(1, "a", attempts=1), record(2, "a"))
    abort(relay, r1=POISON)
    assert [f.record.id for f in settle(relay, now=12.0).poisoned] == [1]

    assert read_held(relay, 12.0, record(2, "a")) == [2]
    assert commit(relay) == [2]


def test_block_key_never_parks() -> None:
    relay = relay_with(record(1, attempts=50))
    abort(relay, r1=POISON)

    settlement = settle(relay)
    assert (settlement.poisoned, len(settlement.failed)) == ([], 1)


# Rows that are in the log already.


def test_a_row_that_is_in_the_log_is_purged_and_not_sent() -> None:
    relay = relay_with()
    relay.seen([record(1), record(2)], "me")

    assert not relay.has_work
    assert not relay.is_idle
    settlement = settle(relay)
    assert ids(settlement.acknowledged) == [1, 2]
    assert settlement.leader_id == "me"
    assert relay.is_idle


def test_it_is_taken_once_and_not_listed_again() -> None:
    """An earlier ledger has told of it."""
    relay = relay_with(record(3))
    relay.seen([record(1)], "me")
    relay.seen([record(1)], "me")
    commit(relay)

    assert ids(relay.unpurged) == [3]
    assert relay.sweep().known == {1, 3}
    assert ids(settle(relay).acknowledged) == [1, 3]


def test_no_more_rows_are_read_than_are_purged() -> None:
    relay = relay_with(batch=2)
    relay.seen([record(n) for n in range(1, 5)], "me")
    assert not relay.has_room

    settle(relay)

    assert relay.has_room


def test_a_run_that_ends_forgets_what_nobody_purges_for_it() -> None:
    relay = relay_with(batch=2)
    relay.seen([record(n) for n in range(1, 5)], "me")
    relay.forget()

    assert relay.has_room
    assert relay.is_idle
