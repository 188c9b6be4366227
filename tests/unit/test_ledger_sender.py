"""Exactly-once delivery in transactions, on fakes of table and Kafka."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from django_outbox.exceptions import (
    KafkaUnavailable,
)
from django_outbox.message.record import Record
from django_outbox.relay.ledger.ledger_sender import (
    MIN_TRANSACTION_RECORDS,
    OPEN_INTERVAL,
    Stage,
)
from django_outbox.relay.ledger.ports import Ledger

from .leading import Term
from .ledger_bench import Cluster, LedgerBench
from .samples import record


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def bench(cluster: Cluster) -> LedgerBench:
    return LedgerBench(cluster)


def warned(caplog: pytest.LogCaptureFixture, action: str) -> int:
    found = [r for r in caplog.records if getattr(r, "action", "") == action]
    return sum(r.levelno >= logging.WARNING for r in found)


def test_rows_are_sent_in_order_and_purged(
    cluster: Cluster, bench: LedgerBench
) -> None:
    cluster.insert("a", "b", "c")
    bench.run()

    assert cluster.seen == ["a", "b", "c"]
    assert cluster.left == []
    assert bench.engine.purged == 3


def test_the_history_is_asked_before_anything_is_read(
    cluster: Cluster, bench: LedgerBench
) -> None:
    cluster.insert("a")
    bench.round()

    assert bench.sender.stage is Stage.OPENED
    assert [request.limit for request in bench.asked] == [0]
    bench.round()
    assert bench.sender.stage is Stage.RELAYING


def test_a_batch_is_one_transaction(cluster: Cluster) -> None:
    bench = LedgerBench(cluster, page_rows=2)
    bench.prove()
    cluster.insert("a", "b", "c")
    bench.run()

    assert cluster.seen == ["a", "b", "c"]
    assert cluster.transactions_done == 2


def test_a_transaction_that_takes_long_is_followed_by_a_smaller_one(
    cluster: Cluster,
) -> None:
    """Four of them take longer than half of the delivery time-out."""
    bench = LedgerBench(
        cluster,
        page_rows=8 * MIN_TRANSACTION_RECORDS,
        blocks=True,
        delivery_timeout=2.0,
    )
    bench.prove()
    took, sizes = iter([0.9, 1.1, 1.1, 1.1, 1.1, 0.9, 0.9]), list[int]()

    def send(
        real: Callable[..., Any], records: Sequence[Record], *rest: Any, **named: Any
    ) -> Any:
        sizes.append(len(records))
        bench.now += next(took)
        return real(records, *rest, **named)

    bench.intercept(send)
    cluster.insert(*["a"] * (26 * MIN_TRANSACTION_RECORDS))
    bench.run()

    assert [size / MIN_TRANSACTION_RECORDS for size in sizes] == [8, 8, 4, 2, 1, 1, 2]


def test_a_ledger_lists_what_earlier_transactions_left_unpurged(
    cluster: Cluster,
) -> None:
    bench = LedgerBench(cluster, page_rows=1)
    bench.is_settling = False
    cluster.insert("a", "b", "c")
    bench.run()

    # Two settlements are under way; a third transaction waits for one of them.
    assert cluster.seen == ["a", "b"]
    assert cluster.ledger == [2, 1]
    bench.is_settling = True
    bench.run()
    assert cluster.seen == ["a", "b", "c"]
    assert cluster.ledger == [3]


# Takeover.


def test_a_successor_purges_what_the_ledger_lists_before_it_reads(
    cluster: Cluster, bench: LedgerBench
) -> None:
    bench.is_settling = False
    cluster.insert("a", "b")
    bench.run()
    assert cluster.left == [1, 2]
    cluster.insert("c")
    successor = LedgerBench(cluster)
    successor.is_settling = False
    successor.run()

    assert successor.sender.stage is Stage.CLEARING
    assert [request.limit for request in successor.asked] == [0]
    successor.is_settling = True
    successor.run()
    assert cluster.seen == ["a", "b", "c"]
    assert cluster.left == []


def key_of(shard: int, shards: int, cluster: Cluster) -> str:
    """Return a key of this shard."""
    is_mine = cluster.table.of_shard(shard, shards).is_mine
    return next(k for k in "abcdef" if is_mine(record(1, topic="t", key=k)))


def test_a_row_that_leaves_the_table_late_is_no_second_time_its_new_shards(
    cluster: Cluster, bench: LedgerBench
) -> None:
    """Only the ledger of the other shard lists it, when this shard begins."""
    mine, another = key_of(1, 2, cluster), key_of(0, 2, cluster)
    cluster.table.locked_ids = {1}
    cluster.insert("stuck", key=mine)
    bench.run()
    other = LedgerBench(cluster, shard=(0, 2))
    other.run()
    cluster.insert("a", key=another)
    other.run()
    cluster.insert("b", key=mine)
    LedgerBench(cluster, shard=(1, 2)).run()

    assert cluster.seen == ["stuck", "a", "b"]
    assert cluster.left == [1]
    cluster.table.locked_ids.clear()
    other.run()
    assert cluster.left == []


def test_a_shard_begins_while_another_one_cannot_purge(cluster: Cluster) -> None:
    other = LedgerBench(cluster, shard=(0, 2))
    other.is_settling = False
    cluster.insert("a", key=key_of(0, 2, cluster))
    other.run()
    cluster.insert("b", key=key_of(1, 2, cluster))
    leader = LedgerBench(cluster, shard=(1, 2))
    leader.run()

    assert cluster.seen == ["a", "b"]
    assert cluster.left == [1]


def test_a_message_that_is_sent_again_on_purpose_is_sent(cluster: Cluster) -> None:
    """The last ledger of the own shard lists it, under another id."""
    key = key_of(0, 2, cluster)
    sent = cluster.table.insert("t", key, "a")
    LedgerBench(cluster, shard=(0, 2)).run()
    leader = LedgerBench(cluster, shard=(0, 2))
    leader.run()
    assert cluster.left == []
    again = cluster.table.make("t", key, "a")
    cluster.table.put([again._replace(message_id=sent.message_id)])
    leader.run()

    assert cluster.seen == ["a", "a"]
    assert cluster.left == []


def test_a_successor_fences_its_predecessor(
    cluster: Cluster, bench: LedgerBench
) -> None:
    bench.run()
    successor = LedgerBench(cluster)
    successor.run()
    cluster.insert("a")
    bench.leadership.term = None
    bench.run()
    successor.run()

    assert cluster.seen == ["a"]


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_outcome_that_nobody_tells_is_read_from_the_ledger(
    cluster: Cluster, bench: LedgerBench, *, is_committed: bool
) -> None:
    bench.run()
    bench.transactions.unanswered = is_committed
    cluster.insert("a", "b")
    bench.run()

    assert cluster.seen == ["a", "b"]
    assert cluster.left == []


def test_a_page_that_a_run_has_asked_for_says_nothing_to_the_next_one(
    cluster: Cluster, bench: LedgerBench
) -> None:
    """Its rows come behind those that the next run finds at the head."""
    bench.run()
    cluster.insert("a")
    bench.round()
    bench.now += 1.0
    bench.transactions.unanswered = False
    bench.dispatcher.step()
    assert bench.sender.stage is Stage.CLOSED
    assert len(bench.requests) == 1
    cluster.insert("b")
    bench.run()

    assert cluster.seen == ["a", "b"]


def test_nothing_is_opened_while_a_purge_is_under_way(
    cluster: Cluster, bench: LedgerBench
) -> None:
    """What comes back from the table afterwards is not known to be sent."""
    bench.is_settling = False
    cluster.insert("a")
    bench.run()
    bench.transactions.close()
    cluster.insert("b")
    bench.run()
    assert bench.sender.stage is Stage.CLOSED

    bench.is_settling = True
    bench.run()

    assert cluster.seen == ["a", "b"]


def test_opening_is_tried_again_at_intervals_and_reported_once(
    cluster: Cluster, bench: LedgerBench, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.insert("a")
    cluster.log.is_down = True
    tries = []

    def fail() -> Ledger | None:
        tries.append(bench.now)
        raise KafkaUnavailable

    opens, bench.transactions.open = bench.transactions.open, fail  # type: ignore[method-assign]
    bench.run(21)
    bench.transactions.open = opens  # type: ignore[method-assign]
    cluster.log.is_down = False
    bench.run()

    gaps = {round(b - a, 3) for a, b in pairwise(tries)}
    assert gaps <= {OPEN_INTERVAL, OPEN_INTERVAL + 0.1}
    assert warned(caplog, "transaction") == 1
    assert cluster.seen == ["a"]


# Histories.


def test_a_ledger_of_another_history_is_void(
    cluster: Cluster, bench: LedgerBench, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.insert("a")
    standby = cluster.table.standby()
    bench.run()
    assert cluster.left == []
    cluster.table.promote(standby)
    cluster.insert("b")
    LedgerBench(cluster).run()

    assert cluster.seen == ["a", "a", "b"]
    assert cluster.left == []
    assert warned(caplog, "ledger_void") == 1


def test_a_failover_under_a_leader_begins_a_new_run(
    cluster: Cluster, bench: LedgerBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Ids that are given again lie behind the position of the run before."""
    cluster.insert("a")
    standby = cluster.table.standby()
    cluster.insert("b", "c")
    bench.run()
    cluster.table.promote(standby)
    cluster.insert("d")
    bench.run()

    assert cluster.seen == ["a", "b", "c", "a", "d"]
    assert cluster.left == []
    assert warned(caplog, "timeline_changed") == 1


# Leadership.


def test_without_a_term_nothing_is_opened(cluster: Cluster, bench: LedgerBench) -> None:
    bench.leadership.term = None
    cluster.insert("a")
    bench.run()

    assert bench.sender.stage is Stage.CLOSED
    assert cluster.seen == []


def test_a_term_that_is_not_proven_any_more_ends_the_run(
    cluster: Cluster, bench: LedgerBench
) -> None:
    bench.run()
    bench.leadership.term = Term(trusted_until=bench.now)
    cluster.insert("a")
    bench.run()

    assert bench.sender.stage is Stage.CLOSED
    assert cluster.seen == []


def test_an_id_that_was_stood_down_from_is_not_led_again(
    cluster: Cluster, bench: LedgerBench
) -> None:
    """The elector extends a lease that has ended a moment ago."""
    bench.run()
    term = bench.leadership.term
    assert term is not None
    bench.leadership.term = replace(term, trusted_until=bench.now)
    bench.run(1)
    bench.leadership.term = term
    cluster.insert("a")
    bench.run()

    assert bench.leadership.term != term
    assert cluster.seen == ["a"]


def test_trust_is_asked_again_before_the_commit(
    cluster: Cluster, bench: LedgerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run()
    send = bench.transactions.send

    def pause(*args: object, **named: object) -> object:
        bench.leadership.term = Term(trusted_until=bench.now)
        return send(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.transactions, "send", pause)
    cluster.insert("a")
    bench.run()

    assert cluster.seen == []
    assert cluster.left == [1]


def test_a_drain_is_over_when_everything_is_purged(
    cluster: Cluster, bench: LedgerBench
) -> None:
    bench.is_settling = False
    cluster.insert("a")
    bench.run()
    assert bench.leadership.term is not None
    bench.queue.begin_drain(bench.leadership.term)
    cluster.insert("b")
    bench.run()
    assert not bench.queue.wait_drained(0)

    bench.is_settling = True
    bench.run()

    assert bench.queue.wait_drained(0)
    assert cluster.seen == ["a"]
    assert cluster.left == [2]


def test_after_a_drain_another_term_goes_on(
    cluster: Cluster, bench: LedgerBench
) -> None:
    bench.run()
    term = bench.leadership.term
    assert term is not None
    bench.queue.begin_drain(term)
    cluster.insert("a")
    bench.run()
    assert cluster.seen == []

    bench.leadership.term = replace(term, leader_id="id-2", acquired_at=200.0)
    bench.run()

    assert cluster.seen == ["a"]


def test_a_leader_without_its_table_resigns(
    cluster: Cluster, bench: LedgerBench
) -> None:
    bench.run()
    cluster.table.is_down = True
    bench.run(90)
    assert bench.leadership.resigned == ""
    bench.run(40)

    assert bench.leadership.resigned.startswith("no database for ")


def test_a_table_that_comes_back_is_relayed_on(
    cluster: Cluster, bench: LedgerBench
) -> None:
    cluster.table.is_down = True
    bench.run()
    cluster.table.is_down = False
    cluster.insert("a")
    bench.run()
    cluster.table.is_down = True
    bench.run()
    cluster.table.is_down = False
    cluster.insert("b")
    bench.run()

    assert cluster.seen == ["a", "b"]
    assert cluster.left == []
