"""One round of the ledger relay, against the shipped fakes of table and Kafka."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from django_outbox.exceptions import KafkaUnavailable, LedgerRefused
from django_outbox.kafka import ledger_topic as ledgers
from django_outbox.message.headers import texts
from django_outbox.message.record import Record
from django_outbox.message.retry import RetryPolicy
from django_outbox.relay.lease import Lease
from django_outbox.relay.ledger.ledger_dispatcher import (
    ABORT_PAUSE,
    OPEN_INTERVAL,
    LedgerDispatcher,
)
from django_outbox.relay.ledger.page_reader import PageReader
from django_outbox.relay.ledger.page_request import Page, PageRequest
from django_outbox.relay.ledger.ports import Ledger
from django_outbox.relay.ledger.settings import LedgerSettings
from django_outbox.relay.ledger.stage import Stage
from django_outbox.relay.polling import SWEEP_INTERVAL
from django_outbox.relay.settlement import Settlement
from django_outbox.relay.settler import Attempt, Settler
from django_outbox.relay.work_queue import WorkQueue
from django_outbox.settings.options import OutboxSettings
from tests.fakes.producer import InMemoryLog, named
from tests.fakes.transactions import InMemoryTransactions
from tests.fakes.transactor import Transactor
from tests.fakes.unmarked import InMemoryUnmarked

LEDGER_TOPIC = named(OutboxSettings()).ledger_topic


@dataclass(frozen=True)
class Term:
    leader_id: str = "id-1"
    acquired_at: float = 0.0
    trusted_until: float = 1e9

    def remaining(self, now: float) -> float:
        return self.trusted_until - now


class Leadership:
    def __init__(self) -> None:
        self.term: Term | None = Term()
        self.resigned = ""

    def refresh(self, leader_id: str, *, reason: str, now: float) -> Term | None:
        assert self.term is not None
        self.term = replace(self.term, leader_id=f"{leader_id}, refreshed")
        return self.term

    def resign(self, leader_id: str, *, reason: str) -> None:
        self.resigned = reason


@dataclass
class Cluster:
    """What outlives a process: table and log."""

    table: InMemoryUnmarked = field(default_factory=InMemoryUnmarked)
    log: InMemoryLog = field(default_factory=InMemoryLog)
    transactor: Transactor = field(default_factory=Transactor)

    def transactions(self) -> InMemoryTransactions:
        return InMemoryTransactions(self.log, self.transactor)

    def insert(self, *values: str, key: str = "k") -> None:
        for value in values:
            self.table.insert("t", key, value)

    @property
    def seen(self) -> list[str]:
        """The values that a reader of committed records sees."""
        return [(message.value or b"").decode() for message in self.log.of("t")]

    @property
    def left(self) -> list[int]:
        return [record.id for record in self.table.records()]

    @property
    def ledger(self) -> list[int]:
        """The ids that the last ledger lists."""
        last = self.log.of(LEDGER_TOPIC)[-1]
        ledger = ledgers.decode(texts(last.headers), last.value)
        return [record.id for record in ledger.records]


class Bench:
    """A dispatcher, its page reader, and a settler that a test may stop."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        batch: int = 10,
        kind: type[LedgerDispatcher] = LedgerDispatcher,
        **settings: Any,
    ) -> None:
        self.now = 100.0
        self.cluster = cluster
        self.leadership = Leadership()
        self.transactions = cluster.transactions()
        self.requests: deque[PageRequest] = deque()
        self.settlements: deque[Settlement] = deque()
        self.wakes: list[float] = []
        self.asked: list[PageRequest] = []
        self.is_settling = True
        self.reader = PageReader(table=cluster.table, clock=self.clock)
        self.settler = Settler(
            outbox=cluster.table, on_parked=lambda *_: None, clock=self.clock
        )
        self.attempt: Attempt | None = None
        self.queue = WorkQueue[PageRequest, Page](
            read=self.requests.append,
            settle=self.settlements.append,
            wake=lambda: self.wakes.append(self.now),
        )
        self.dispatcher = kind(
            LedgerSettings(
                page_bytes=500_000,
                batch=batch,
                delivery_timeout=5.0,
                busy_interval=0.01,
                idle_interval=0.1,
                retry=RetryPolicy(backoff=1.0, backoff_max=8.0, attempts=0),
                **settings,
            ),
            lease=Lease(
                self.leadership,
                clock=self.clock,
                outages=(self.reader.outage, self.settler.outage),
                deadline=10.0,
            ),
            transactions=self.transactions,
            queue=self.queue,
            clock=self.clock,
        )

    def clock(self) -> float:
        return self.now

    def round(self) -> float:
        """Let each thread do what there is."""
        rest = self.dispatcher.step()
        while self.requests:
            request = self.requests.popleft()
            self.asked.append(request)
            self.queue.put_page(self.reader.carry_out(request))
        while self.is_settling and self.settlements:
            attempt = self.attempt or Attempt(self.settlements[0])
            self.attempt = attempt
            if self.settler.advance(attempt) is not None:
                break
            self.attempt = None
            self.settlements.popleft()
            self.queue.put_settled(attempt.settled())
        return rest

    def run(self, rounds: int = 30) -> None:
        for _ in range(rounds):
            self.round()
            self.now += 0.1


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def bench(cluster: Cluster) -> Bench:
    return Bench(cluster)


def warned(caplog: pytest.LogCaptureFixture, action: str) -> int:
    found = [r for r in caplog.records if getattr(r, "action", "") == action]
    return sum(r.levelno >= logging.WARNING for r in found)


def test_rows_are_sent_in_order_and_purged(cluster: Cluster, bench: Bench) -> None:
    cluster.insert("a", "b", "c")
    bench.run()

    assert cluster.seen == ["a", "b", "c"]
    assert cluster.left == []
    assert bench.dispatcher.relay.purged == 3


def test_the_history_is_asked_before_anything_is_read(
    cluster: Cluster, bench: Bench
) -> None:
    cluster.insert("a")
    bench.round()

    assert bench.dispatcher.stage is Stage.OPENED
    assert [look.limit for look in bench.asked] == [0]
    bench.round()
    assert bench.dispatcher.stage is Stage.RELAYING


def test_a_batch_is_one_transaction(cluster: Cluster) -> None:
    bench = Bench(cluster, batch=2)
    cluster.insert("a", "b", "c")
    bench.run()

    assert cluster.seen == ["a", "b", "c"]
    assert len(cluster.log.of(LEDGER_TOPIC)) == 2


def test_a_ledger_lists_what_earlier_transactions_left_unpurged(
    cluster: Cluster,
) -> None:
    bench = Bench(cluster, batch=1)
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
    cluster: Cluster, bench: Bench
) -> None:
    bench.is_settling = False
    cluster.insert("a", "b")
    bench.run()
    assert cluster.left == [1, 2]
    cluster.insert("c")
    successor = Bench(cluster)
    successor.is_settling = False
    successor.run()

    assert successor.dispatcher.stage is Stage.CLEARING
    assert [look.limit for look in successor.asked] == [0]
    successor.is_settling = True
    successor.run()
    assert cluster.seen == ["a", "b", "c"]
    assert cluster.left == []


def test_a_successor_fences_its_predecessor(cluster: Cluster, bench: Bench) -> None:
    bench.run()
    successor = Bench(cluster)
    successor.run()
    cluster.insert("a")
    bench.leadership.term = None
    bench.run()
    successor.run()

    assert cluster.seen == ["a"]


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_outcome_that_nobody_tells_is_read_from_the_ledger(
    cluster: Cluster, bench: Bench, *, is_committed: bool
) -> None:
    bench.run()
    bench.transactions.unanswered = is_committed
    cluster.insert("a", "b")
    bench.run()

    assert cluster.seen == ["a", "b"]
    assert cluster.left == []


def test_nothing_is_opened_while_a_purge_is_under_way(
    cluster: Cluster, bench: Bench
) -> None:
    """What comes back from the table afterwards is not known to be sent."""
    bench.is_settling = False
    cluster.insert("a")
    bench.run()
    bench.transactions.close()
    cluster.insert("b")
    bench.run()
    assert bench.dispatcher.stage is Stage.CLOSED

    bench.is_settling = True
    bench.run()

    assert cluster.seen == ["a", "b"]


def test_opening_is_tried_again_at_intervals_and_reported_once(
    cluster: Cluster, bench: Bench, caplog: pytest.LogCaptureFixture
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
    cluster: Cluster, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.insert("a")
    standby = cluster.table.standby()
    bench.run()
    assert cluster.left == []
    cluster.table.promote(standby)
    cluster.insert("b")
    Bench(cluster).run()

    assert cluster.seen == ["a", "a", "b"]
    assert cluster.left == []
    assert warned(caplog, "ledger_void") == 1


def test_a_failover_under_a_leader_begins_a_new_run(
    cluster: Cluster, bench: Bench, caplog: pytest.LogCaptureFixture
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
    assert warned(caplog, "history_changed") == 1


# Leadership.


def test_without_a_term_nothing_is_opened(cluster: Cluster, bench: Bench) -> None:
    bench.leadership.term = None
    cluster.insert("a")
    bench.run()

    assert bench.dispatcher.stage is Stage.CLOSED
    assert cluster.seen == []


def test_a_term_that_is_not_proven_any_more_ends_the_run(
    cluster: Cluster, bench: Bench
) -> None:
    bench.run()
    bench.leadership.term = Term(trusted_until=bench.now)
    cluster.insert("a")
    bench.run()

    assert bench.dispatcher.stage is Stage.CLOSED
    assert cluster.seen == []


def test_an_id_that_was_stood_down_from_is_not_led_again(
    cluster: Cluster, bench: Bench
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
    cluster: Cluster, bench: Bench, monkeypatch: pytest.MonkeyPatch
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
    cluster: Cluster, bench: Bench
) -> None:
    bench.is_settling = False
    cluster.insert("a")
    bench.run()
    assert bench.leadership.term is not None
    bench.queue.begin_drain(bench.leadership.term)
    cluster.insert("b")
    bench.run()
    assert not bench.queue.is_drained

    bench.is_settling = True
    bench.run()

    assert bench.queue.is_drained
    assert cluster.seen == ["a"]
    assert cluster.left == [2]


def test_after_a_drain_another_term_goes_on(cluster: Cluster, bench: Bench) -> None:
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


def test_a_leader_without_its_table_resigns(cluster: Cluster, bench: Bench) -> None:
    bench.run()
    cluster.table.is_down = True
    bench.run(90)
    assert bench.leadership.resigned == ""
    bench.run(40)

    assert bench.leadership.resigned.startswith("no database for ")


def test_a_table_that_comes_back_is_relayed_on(cluster: Cluster, bench: Bench) -> None:
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


# Records that fail.


def test_a_record_without_a_topic_holds_its_lane_only(
    cluster: Cluster, bench: Bench
) -> None:
    cluster.insert("a")
    cluster.table.insert("outbox-leader", "k", "poison")
    cluster.insert("b")
    bench.run()

    assert cluster.seen == ["a", "b"]
    assert cluster.left == [2]
    assert set(bench.dispatcher.relay.blocked) == {("outbox-leader", "k")}


def test_a_transaction_that_fails_by_nobodys_fault_is_tried_again_after_a_pause(
    cluster: Cluster, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run()
    send, tries = bench.transactions.send, []

    def abort_once(*args: object, **named: object) -> object:
        tries.append(bench.now)
        return [] if len(tries) == 1 else send(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.transactions, "send", abort_once)
    cluster.insert("a")
    for _ in range(200):
        bench.round()
        bench.now += 0.001

    assert len(tries) == 2
    assert tries[1] - tries[0] == pytest.approx(ABORT_PAUSE, abs=0.0021)
    assert cluster.seen == ["a"]


# Nudges.


def test_a_ledger_that_is_refused_is_told_once_and_tried_with_fewer_records(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(cluster, batch=8)
    send = bench.transactions.send
    tried: list[int] = []

    def refuse(records: Sequence[Record], *rest: Any, **named: Any) -> Any:
        tried.append(len(records))
        if len(records) > 2:
            raise LedgerRefused("the topic 'ledger' refused it: too large (SIZE).")
        return send(records, *rest, **named)

    bench.transactions.send = refuse  # type: ignore[method-assign]
    cluster.insert(*"abcdefgh")
    for _ in range(40):
        bench.run(3)
        bench.now += OPEN_INTERVAL
    assert "".join(cluster.seen) == "abcdefgh"
    assert cluster.left == []
    assert tried[:3] == [8, 4, 2]
    assert "the topic 'ledger' refused it" in caplog.text


def test_a_commit_looks_at_once_whatever_the_pace_says(
    cluster: Cluster, bench: Bench
) -> None:
    bench.run()
    bench.round()
    looks = len(bench.asked)
    cluster.insert("a")
    bench.round()
    assert len(bench.asked) == looks

    bench.queue.read_now()
    bench.round()
    bench.round()

    assert len(bench.asked) == looks + 1
    assert cluster.seen == ["a"]


def test_a_commit_while_a_request_is_out_makes_one_more(
    cluster: Cluster, bench: Bench
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


def test_a_commit_is_not_used_up_by_a_sweep(cluster: Cluster, bench: Bench) -> None:
    bench.run()
    looks = len(bench.asked)
    bench.now += 2 * SWEEP_INTERVAL
    bench.dispatcher._schedule.read_at = bench.now + 1.0
    cluster.insert("a")
    bench.queue.read_now()
    for _ in range(3):
        bench.round()

    assert [look.sweep is None for look in bench.asked[looks:]] == [False, True]
    assert cluster.seen == ["a"]


def test_a_commit_does_not_shorten_the_pause_after_an_error(
    cluster: Cluster, bench: Bench
) -> None:
    bench.run()
    cluster.table.is_down = True
    bench.now += 1.0
    bench.round()
    looks = len(bench.asked)
    bench.queue.read_now()

    assert bench.round() > 0.0
    assert len(bench.asked) == looks


# Rest.


def test_a_round_that_has_sent_something_is_followed_at_once(
    cluster: Cluster, bench: Bench
) -> None:
    bench.run()
    cluster.insert("a")
    bench.now += 1.0
    rests = [bench.round() for _ in range(4)]

    assert 0.0 in rests
    assert cluster.seen == ["a"]


def test_an_idle_leader_rests_until_its_next_look(bench: Bench) -> None:
    bench.run()

    rest = bench.round()

    assert 0.0 < rest <= 0.1


def test_a_follower_rests(bench: Bench) -> None:
    bench.leadership.term = None

    assert bench.round() == 0.1


def test_close_drops_the_client(cluster: Cluster, bench: Bench) -> None:
    bench.run()
    bench.dispatcher.close()
    bench.dispatcher.close()
    cluster.insert("a")
    bench.run()

    # The next transaction finds the client closed, and opens another.
    assert cluster.seen == ["a"]
