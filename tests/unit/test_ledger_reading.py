"""When the ledger relay reads and rests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_outbox.relay.polling import SWEEP_INTERVAL

from .ledger_bench import Cluster, LedgerBench


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def bench(cluster: Cluster) -> LedgerBench:
    return LedgerBench(cluster)


# Nudges.


def test_a_commit_reads_at_once_whatever_the_schedule_says(
    cluster: Cluster, bench: LedgerBench
) -> None:
    bench.run()
    bench.round()
    requests = len(bench.asked)
    cluster.insert("a")
    bench.round()
    assert len(bench.asked) == requests

    bench.queue.read_now()
    bench.round()
    bench.round()

    assert len(bench.asked) == requests + 1
    assert cluster.seen == ["a"]


def test_a_commit_while_a_request_is_out_makes_one_more(
    cluster: Cluster, bench: LedgerBench
) -> None:
    bench.run()
    bench.queue.read_now()
    bench.dispatcher.step()
    page = bench.reader.carry_out(bench.requests.popleft())

    cluster.insert("a")
    bench.queue.read_now()
    bench.dispatcher.step()
    assert not bench.requests
    bench.queue.put_page(page)
    bench.round()
    bench.round()

    assert cluster.seen == ["a"]


def test_a_commit_is_not_used_up_by_a_sweep(
    cluster: Cluster, bench: LedgerBench
) -> None:
    bench.run()
    requests = len(bench.asked)
    bench.now += 2 * SWEEP_INTERVAL
    bench.schedule.read_at = bench.now + 1.0
    cluster.insert("a")
    bench.queue.read_now()
    for _ in range(3):
        bench.round()

    assert [request.sweep is None for request in bench.asked[requests:]] == [
        False,
        True,
    ]
    assert cluster.seen == ["a"]


def test_a_commit_does_not_shorten_the_pause_after_an_error(
    cluster: Cluster, bench: LedgerBench
) -> None:
    bench.run()
    cluster.table.is_down = True
    bench.now += 1.0
    bench.round()
    requests = len(bench.asked)
    bench.queue.read_now()

    assert bench.round() > 0.0
    assert len(bench.asked) == requests


# Rest.


def test_a_round_that_has_sent_something_is_followed_at_once(
    cluster: Cluster, bench: LedgerBench
) -> None:
    bench.run()
    cluster.insert("a")
    bench.now += 1.0
    rests = [bench.round() for _ in range(4)]

    assert 0.0 in rests
    assert cluster.seen == ["a"]


def test_an_idle_leader_rests_until_its_next_request(bench: LedgerBench) -> None:
    bench.run()

    rest = bench.round()

    assert 0.0 < rest <= 0.1


def test_a_follower_rests(bench: LedgerBench) -> None:
    bench.leadership.term = None

    assert bench.round() == pytest.approx(0.1)


def test_close_drops_the_client(cluster: Cluster, bench: LedgerBench) -> None:
    bench.run()
    bench.dispatcher.close()
    bench.dispatcher.close()
    cluster.insert("a")
    bench.run()

    # The next transaction finds the client closed, and opens another.
    assert cluster.seen == ["a"]


# Beside a transaction.


def asked_before_each(bench: LedgerBench) -> list[int]:
    """Note how many requests are out whenever a transaction begins."""
    asked: list[int] = []

    def send(real: Callable[..., Any], *args: Any, **named: Any) -> Any:
        asked.append(len(bench.requests))
        return real(*args, **named)

    bench.intercept(send)
    return asked


def test_behind_a_full_page_the_next_one_is_read_meanwhile(cluster: Cluster) -> None:
    bench = LedgerBench(cluster, blocks=True, page_rows=2)
    bench.run()
    bench.prove()
    asked = asked_before_each(bench)
    for value in "abcde":
        cluster.insert(value)
    bench.run()

    assert asked == [1, 1, 0]
    assert cluster.seen == list("abcde")


def test_else_a_page_is_read_as_late_as_possible(cluster: Cluster) -> None:
    bench = LedgerBench(cluster, blocks=True)
    bench.run()
    bench.prove()
    asked = asked_before_each(bench)
    cluster.insert("a")
    bench.queue.read_now()
    bench.round()
    # It may be read again, but what was found goes first.
    bench.queue.read_now()
    bench.round()

    assert asked == [0]
    assert cluster.seen == ["a"]


def test_a_relay_whose_purges_get_no_answer_rests() -> None:
    """As while another session has locked the table against deletes only."""
    cluster = Cluster()
    bench = LedgerBench(cluster, blocks=True)
    bench.run()
    bench.is_settling = False
    for value in "abc":
        cluster.insert(value)
        bench.run(10)
    assert cluster.seen == ["a", "b"]
    assert len(bench.engine.waiting.known) == 3

    rests = []
    for _ in range(20):
        rests.append(bench.round())
        bench.now += max(rests[-1], 0.001)

    assert rests.count(0.0) <= 4
    bench.is_settling = True
    bench.run()
    assert cluster.seen == ["a", "b", "c"]
    assert cluster.left == []
