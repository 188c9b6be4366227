"""When a dispatcher reads: at once after a commit, and now and then by a sweep."""

from __future__ import annotations

import pytest

from django_outbox.exceptions import DeliveryFailed
from django_outbox.message.record import Sweep
from django_outbox.relay.polling import SWEEP_INTERVAL

from .dispatcher_bench import Bench
from .samples import record

LATE = DeliveryFailed("timed out", code="_MSG_TIMED_OUT")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_commit_reads_at_once_whatever_the_schedule_says(bench: Bench) -> None:
    bench.step()
    bench.stash(record(1, "a"))
    bench.step(after=0.0)
    assert bench.producers == []

    bench.queue.read_now()
    bench.step(after=0.0)

    assert bench.sent == [[1]]


def test_a_commit_is_one_page_and_the_schedule_goes_on(bench: Bench) -> None:
    bench.step()
    bench.queue.read_now()
    bench.step(after=0.0)
    bench.stash(record(1, "a"))

    bench.step(after=0.0)
    assert bench.producers == []
    bench.step()

    assert bench.sent == [[1]]


def test_a_commit_while_a_request_is_out_makes_one_more(bench: Bench) -> None:
    bench.now += 0.2
    bench.dispatcher.step()
    page = bench.reader.carry_out(bench.requests.pop())

    bench.stash(record(1, "a"))
    bench.queue.read_now()
    bench.dispatcher.step()
    assert bench.requests == []
    bench.queue.put_page(page)
    bench.step(after=0.0)

    assert bench.sent == [[1]]


def test_a_commit_is_not_used_up_by_a_sweep() -> None:
    bench = Bench(marks_in_table=False)
    bench.step()
    bench.now += 2 * SWEEP_INTERVAL
    bench.schedule.read_at = bench.now + 1.0
    bench.stash(record(1, "a"))
    bench.queue.read_now()
    bench.step(after=0.0)

    assert len(bench.table.sweeps) == 2
    assert bench.sent == [[1]]


def test_a_commit_ends_a_rest(bench: Bench) -> None:
    bench.step()
    bench.wakes.clear()

    bench.queue.read_now()

    assert bench.wakes == [bench.now]


def test_a_commit_during_a_drain_reads_nothing(bench: Bench) -> None:
    bench.step()
    assert bench.leadership.term is not None
    bench.queue.begin_drain(bench.leadership.term)
    bench.queue.read_now()

    assert bench.dispatcher.step() == pytest.approx(0.1)
    assert bench.requests == []


def test_a_commit_does_not_shorten_the_pause_after_an_error(bench: Bench) -> None:
    bench.table.is_away = True
    bench.step()
    bench.queue.read_now()

    assert bench.dispatcher.step() > 0.0
    assert bench.requests == []


def test_a_commit_that_finds_no_room_does_not_spin(bench: Bench) -> None:
    bench.stash(*(record(n, "a") for n in range(1, 200)))
    for _ in range(20):
        bench.step()
    assert not bench.engine.has_room
    bench.producer.ack()
    bench.dispatcher.step()
    bench.queue.read_now()

    assert bench.dispatcher.step() > 0.0
    assert bench.requests == []


# Sweeps.


def test_marks_in_memory_are_swept_but_for_what_is_in_hand() -> None:
    bench = Bench(marks_in_table=False)
    bench.stash(record(1, key="a"), record(2, key="a"))
    bench.step()
    assert bench.table.sweeps == [Sweep(frozenset(), ())]

    bench.step(after=SWEEP_INTERVAL)

    assert bench.table.sweeps[1:] == [Sweep(frozenset({1, 2}), ())]


def test_a_sweep_passes_over_what_waits_for_a_retry() -> None:
    bench = Bench(marks_in_table=False)
    bench.stash(record(1, key="a"), record(2, key="a"))
    bench.step()
    bench.producer.fail(LATE)
    bench.dispatcher.step()
    bench.step(after=SWEEP_INTERVAL)

    assert bench.table.sweeps[-1] == Sweep({1}, (("t", "a"),))


def test_a_sweep_reads_a_row_where_only_one_may_be_in_flight() -> None:
    bench = Bench(marks_in_table=False, max_in_flight=1)
    bench.dispatcher.step()
    (request,) = bench.requests

    assert request.sweep is not None
    assert request.limit == 1


def test_a_sweep_waits_for_room_and_pages_go_on() -> None:
    """One and a half of three that may be in flight are for other clusters."""
    bench = Bench(marks_in_table=False, max_in_flight=3, clusters=2)
    bench.step()
    bench.engine.waiting.limited = {("t", "k")}
    bench.engine.found([record(1)._replace(cluster_id=1)])
    bench.now += SWEEP_INTERVAL
    bench.dispatcher.step()
    (request,) = bench.requests

    assert request.sweep is None
    assert request.limit == 10


def test_marks_in_the_table_are_not_swept(bench: Bench) -> None:
    bench.step()
    bench.step(after=SWEEP_INTERVAL)

    assert bench.table.sweeps == []
