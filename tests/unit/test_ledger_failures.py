"""Transactions that fail: records are blocked or parked, and batches are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from django_outbox.exceptions import DeliveryFailed, LedgerRefused, RecordPoisoned
from django_outbox.message.record import Record
from django_outbox.message.retry import RetryPolicy
from django_outbox.relay.batch import Fault
from django_outbox.relay.ledger.ledger_sender import (
    ABORT_PAUSE,
    LATE_TOPIC_TIMEOUTS,
    OPEN_INTERVAL,
    RETRY_TIMEOUT,
)

from .ledger_bench import Cluster, LedgerBench
from .samples import PARK

LATE = DeliveryFailed("timed out", code="_MSG_TIMED_OUT")
ABANDONED = DeliveryFailed("given up", code="_PURGE_INFLIGHT")
POISON = RecordPoisoned("no such topic", code="UNKNOWN_TOPIC")
SOMEBODY = RecordPoisoned("too large", code="MSG_SIZE", is_certain=False)
AT_ONCE = RetryPolicy(backoff=1.0, backoff_max=8.0, attempts=1)

Send = Callable[..., Any]


class Broker:
    """Refuses transactions with some records; notes which were tried."""

    def __init__(self, bench: LedgerBench) -> None:
        self.errors: dict[str, DeliveryFailed] = {}
        """By value, why a record is refused."""
        self.tried: list[str] = []
        """The values of each transaction, put together."""
        self.patience: list[float] = []
        bench.intercept(self._send)

    def _send(
        self, send: Send, records: Sequence[Record], *rest: object, **named: Any
    ) -> Any:
        self.tried.append("".join(str(record.value) for record in records))
        self.patience.append(named["patience"])
        faults = [
            Fault(record, error)
            for record in records
            if (error := self.errors.get(str(record.value)))
        ]
        return faults or send(records, *rest, **named)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def bench(cluster: Cluster) -> LedgerBench:
    bench = LedgerBench(cluster)
    bench.prove()
    bench.run()
    return bench


@pytest.fixture
def broker(bench: LedgerBench) -> Broker:
    return Broker(bench)


def test_a_record_without_a_topic_blocks_its_key_only(
    cluster: Cluster, bench: LedgerBench
) -> None:
    cluster.insert("a")
    cluster.table.insert("outbox-leader", "k", "poison")
    cluster.insert("b")
    bench.run()

    assert cluster.seen == ["a", "b"]
    assert cluster.left == [2]
    assert set(bench.engine.blocked) == {("outbox-leader", "k")}


def test_a_failed_record_blocks_its_key_and_the_rest_goes_on(
    cluster: Cluster, bench: LedgerBench, broker: Broker
) -> None:
    broker.errors = {"b": LATE}
    for value, key in zip("abcd", "xyxy", strict=True):
        cluster.insert(value, key=key)
    bench.run(5)

    assert broker.tried == ["abcd", "ac"]
    assert cluster.seen == ["a", "c"]
    assert cluster.left == [2, 4]
    assert cluster.table.errors()[2] == "_MSG_TIMED_OUT: timed out"
    assert bench.engine.failed == 1


def test_what_was_sent_with_a_failed_record_goes_before_all_that_follows(
    cluster: Cluster, bench: LedgerBench, broker: Broker
) -> None:
    """Otherwise the next record that fails would hold it up again, and so on."""
    broker.errors = {"L": LATE, "M": LATE}
    for value in "abL":
        cluster.insert(value, key=value)

    def read_meanwhile(send: Send, *args: object, **named: Any) -> Any:
        if not broker.tried:
            cluster.insert("M", key="M")
            bench.engine.found(cluster.table.records()[-1:])
        return send(*args, **named)

    bench.intercept(read_meanwhile)
    bench.run(5)

    assert broker.tried[:2] == ["abL", "ab"]
    assert cluster.seen == ["a", "b"]


def test_a_topic_that_is_late_gets_little_patience_for_a_while(
    cluster: Cluster, bench: LedgerBench, broker: Broker
) -> None:
    """Its partitions may be without a leader; all topics wait for each transaction."""
    broker.errors = {"L": LATE}
    for number in range(3):
        cluster.table.insert("dead", f"key {number}", "L")
        bench.run(2)
    cluster.insert("a")
    bench.run(2)
    bench.now += LATE_TOPIC_TIMEOUTS * 5.0
    cluster.table.insert("dead", "key 3", "L")
    bench.run(2)

    firsts = [n for n, tried in enumerate(broker.tried) if tried in ("L", "a")]
    assert [broker.patience[n] for n in firsts][:4] == [5.0, 0.5, 0.5, 5.0]
    assert broker.patience[-1] == 5.0


def test_a_topic_gets_its_patience_back_where_all_is_slow(
    cluster: Cluster, bench: LedgerBench
) -> None:
    """A hiccup makes all records late once; an acknowledgement takes 0.7 s."""
    is_away = True

    def send(real: Send, records: Sequence[Record], *rest: Any, **named: Any) -> Any:
        bench.now += 0.7
        if is_away or named["patience"] < 0.7:
            return [Fault(record, ABANDONED) for record in records]
        return real(records, *rest, **named)

    bench.intercept(send)
    cluster.insert("a")
    bench.run(3)
    is_away = False
    for number in range(60):
        cluster.insert(f"{number}", key=f"key {number}")
        bench.run(3)

    assert len(cluster.seen) > 20


def test_a_record_before_the_failed_one_of_its_key_waits_with_it(
    cluster: Cluster, bench: LedgerBench, broker: Broker
) -> None:
    broker.errors = {"b": LATE}
    cluster.insert("a", "b", "c")
    bench.run(5)
    assert cluster.seen == []
    broker.errors.clear()
    bench.run()

    assert cluster.seen == ["a", "b", "c"]
    assert broker.tried == ["abc", "a", "b", "c"], "what has failed goes apart"


def test_a_retry_gets_less_time_since_all_others_wait_for_it(
    cluster: Cluster, bench: LedgerBench, broker: Broker
) -> None:
    broker.errors = {"a": LATE}
    cluster.insert("a")
    bench.run(5)
    broker.errors.clear()
    bench.run()

    assert broker.patience == [5.0, RETRY_TIMEOUT]
    assert cluster.seen == ["a"]


def test_an_uncertain_fault_halves_the_batch_down_to_one_record(
    cluster: Cluster, bench: LedgerBench, broker: Broker
) -> None:
    broker.errors = {"a": SOMEBODY}
    cluster.insert(*"abcdefgh")
    bench.run(5)

    assert broker.tried[:4] == ["abcdefgh", "abcd", "ab", "a"]
    assert bench.engine.failed == 0
    broker.errors = {"a": POISON}
    bench.run(5)
    assert bench.engine.failed == 1


def test_a_batch_grows_again_once_it_is_committed(
    cluster: Cluster, bench: LedgerBench, broker: Broker
) -> None:
    broker.errors = {"h": SOMEBODY}
    cluster.insert(*"abcdefgh")
    bench.run(2)
    broker.errors.clear()
    bench.run()

    assert broker.tried == ["abcdefgh", "abcd", "efgh"]
    cluster.insert(*"0123456789")
    bench.run()
    assert broker.tried[3:] == ["0123456789"]


def test_a_certain_fault_counts_and_an_uncertain_one_beside_it_does_not(
    cluster: Cluster, bench: LedgerBench, broker: Broker
) -> None:
    broker.errors = {"a": POISON, "b": SOMEBODY}
    for value, key in zip("ab", "xy", strict=True):
        cluster.insert(value, key=key)
    bench.run(1)
    bench.run(1)
    broker.errors = {"a": POISON}
    bench.run(5)

    assert cluster.seen == ["b"]
    assert bench.engine.failed == 1


def test_poison_is_parked_after_enough_attempts_and_its_key_goes_on(
    cluster: Cluster,
) -> None:
    bench = LedgerBench(cluster, retry=PARK)
    bench.prove()
    broker = Broker(bench)
    broker.errors = {"a": POISON}
    cluster.insert("a", "b")
    bench.run(5)
    assert cluster.table.parked == []
    bench.run()

    assert [failure.record.value for failure in cluster.table.parked] == ["a"]
    assert cluster.seen == ["b"]
    assert cluster.left == []


@pytest.mark.parametrize("retry", [PARK, AT_ONCE])
def test_followers_of_a_record_that_is_to_be_parked_wait_until_it_is(
    cluster: Cluster, retry: RetryPolicy
) -> None:
    bench = LedgerBench(cluster, retry=retry, blocks=True)
    bench.prove()
    broker = Broker(bench)
    broker.errors = {"a": POISON}
    cluster.insert("a", "b")
    while not (bench.settlements and bench.settlements[-1].poisoned):
        bench.is_settling = True
        bench.run(1)
        bench.is_settling = False
        bench.dispatcher.step()
    bench.run()
    assert cluster.seen == []
    rests = []
    for _ in range(20):
        rests.append(bench.round())
        bench.now += max(rests[-1], 0.001)
    assert rests.count(0.0) <= 4, "it rests meanwhile"

    bench.is_settling = True
    bench.run()

    assert cluster.seen == ["b"]
    assert cluster.left == []


def test_a_transaction_that_fails_by_nobodys_fault_is_tried_again_after_a_pause(
    cluster: Cluster, bench: LedgerBench
) -> None:
    tries = []

    def abort_once(send: Send, *arguments: object, **named: object) -> Any:
        tries.append(bench.now)
        return [] if len(tries) == 1 else send(*arguments, **named)

    bench.intercept(abort_once)
    cluster.insert("a")
    for _ in range(200):
        bench.round()
        bench.now += 0.001

    assert len(tries) == 2
    assert tries[1] - tries[0] == pytest.approx(ABORT_PAUSE, abs=0.0021)
    assert cluster.seen == ["a"]
    assert bench.engine.failed == 0


def test_a_ledger_that_is_refused_is_told_and_tried_with_fewer_records(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    bench = LedgerBench(cluster, page_rows=8)
    bench.prove()
    tried: list[int] = []

    def refuse(
        send: Send, records: Sequence[Record], *rest: object, **named: object
    ) -> Any:
        tried.append(len(records))
        if len(records) > 2:
            raise LedgerRefused("the topic 'ledger' refused it: too large (SIZE).")
        return send(records, *rest, **named)

    bench.intercept(refuse)
    cluster.insert(*"abcdefgh")
    for _ in range(40):
        bench.run(3)
        bench.now += OPEN_INTERVAL

    assert "".join(cluster.seen) == "abcdefgh"
    assert cluster.left == []
    assert tried[:3] == [8, 4, 2]
    assert "the topic 'ledger' refused it" in caplog.text


def test_a_batch_has_a_bound_in_bytes(cluster: Cluster) -> None:
    bench = LedgerBench(cluster, page_bytes=10)
    bench.prove()
    broker = Broker(bench)
    bench.is_settling = False
    cluster.insert("aaaa", "bbbbb", "ccccc", "d" * 99)
    bench.run()

    assert broker.tried == ["aaaabbbbb", "ccccc"], "two are under way"
    bench.is_settling = True
    bench.run()
    assert broker.tried[2:] == ["d" * 99]
