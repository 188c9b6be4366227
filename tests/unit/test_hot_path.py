"""
How much Python one record costs, in counts and not in seconds.

At tens of thousands of records a second each function call on a record's way
is a percent. The whole of it is real (marks in memory, page reader, dispatcher,
engine, senders, envelope, producers, settler); only the database and the Kafka client
are not, and what they do is not counted. A bound that is broken says that the way
has become longer: shorten it, or raise the bound and say why.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message

from django_outbox.kafka import ledger_partitions
from django_outbox.kafka import producer as kafka_producer
from django_outbox.kafka import transactions as kafka_transactions
from django_outbox.kafka.ledger_partitions import LedgerPartitions
from django_outbox.kafka.ledger_topic import LedgerTail
from django_outbox.message.retry import RetryPolicy
from django_outbox.relay.dispatcher import Dispatcher, Sender
from django_outbox.relay.engine import Engine
from django_outbox.relay.lease import Lease, Trust
from django_outbox.relay.ledger.ledger_sender import LedgerSender
from django_outbox.relay.ledger.ports import Ledger
from django_outbox.relay.memory_marks import MemoryMarks
from django_outbox.relay.page_reader import PageReader
from django_outbox.relay.pipeline import Pipeline
from django_outbox.relay.polling import PollSchedule
from django_outbox.relay.settings import RelaySettings
from django_outbox.relay.settler import Attempt, Settler
from django_outbox.relay.work_queue import WorkQueue
from django_outbox.settings.options import OutboxSettings
from tests.fakes.unmarked import InMemoryUnmarked

from .counting import Counted, calls_of, instructions_of

KEYS = 1000
FEW, MANY = 1_000, 6_000
"""The difference of two runs is what records cost, without what a start costs."""

MAX_CALLS = {"at-least-once": 11.1, "exactly-once": 13.5}
"""Calls from our code for each record, of Python functions and of C's."""
MAX_INSTRUCTIONS = {"at-least-once": 235.0, "exactly-once": 263.0}
"""Bytecode instructions of our code for each record."""
MAX_STATEMENTS = {"at-least-once": 6.5, "exactly-once": 1.2}
"""Statements for a thousand records, with a table that answers at once: one that
takes its time is given more records at a time."""

OPTIONS = OutboxSettings(LEADER_TOPIC="x", KAFKA={"bootstrap.servers": "nowhere:1"})
MESSAGE = Message(topic="t", partition=0, offset=1)


class Term:
    leader_id = "id-1"
    acquired_at = 0.0

    def remaining(self, now: float) -> float:
        return 10.0


class Leadership:
    term = Term()

    def refresh(self, leader_id: str, *, reason: str, now: float) -> None:
        raise AssertionError(reason)

    def resign(self, leader_id: str, *, reason: str) -> None:
        raise AssertionError(reason)


class Client:
    """Kafka's client, which acknowledges all at the next poll."""

    def __init__(self, config: object) -> None:
        self._waiting: deque[tuple[Callable[..., None], Message]] = deque()

    def produce(self, *arguments: Any, **options: Any) -> None:
        report = options.get("on_delivery") or arguments[4]
        self._waiting.append((report, MESSAGE))

    def poll(self, timeout: float) -> int:
        served = len(self._waiting)
        while self._waiting:
            report, message = self._waiting.popleft()
            report(None, message)
        return served

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        partitions = {0: SimpleNamespace(leader=1)}
        found = SimpleNamespace(error=None, partitions=partitions)
        return SimpleNamespace(topics={topic: found})

    def __getattr__(self, name: str) -> Any:
        """Everything else is about transactions, and succeeds."""
        return lambda *_: None

    def __len__(self) -> int:
        return len(self._waiting)


class Harvest:
    """A leader at work on a backlog, in one thread."""

    def __init__(self, delivery: str, records: int) -> None:
        self.statements: Counter[str] = Counter()
        self._is_exactly_once = delivery == "exactly-once"
        self._rows = InMemoryUnmarked()
        for number in range(records):
            key = f"key-{number % KEYS}"
            self._rows.insert("t", key, "x" * 200, headers=[("kind", "test")])
        self._now = 1.0
        self._requests: deque[Any] = deque()
        self._settlements: deque[Any] = deque()
        self._queue = WorkQueue(
            read=self._requests.append,
            settle=self._settlements.append,
            wake=lambda: None,
        )
        leadership: Any = Leadership()
        self._is_trusted = Trust(leadership, self._clock)
        table: Any = Counted(self._rows, self.statements)
        self._settler = Settler(
            outbox=table, on_parked=lambda *_: None, clock=self._clock
        )
        self._reader = PageReader(
            MemoryMarks(table, clock=self._clock, timeline=lambda: "one"),
            is_trusted=self._is_trusted,
            clock=self._clock,
        )
        settings = self._settings()
        engine = Engine(settings)
        outages = self._reader.outage, self._settler.outage
        self._dispatcher = Dispatcher(
            settings,
            engine=engine,
            sender=self._sender(settings, engine),
            lease=Lease(leadership, outages=outages, deadline=5.0),
            queue=self._queue,
            schedule=PollSchedule(
                busy_interval=settings.busy_interval,
                idle_interval=settings.idle_interval,
            ),
            clock=self._clock,
        )

    def run(self) -> None:
        """Relay all there is."""
        while self._rows.records():
            self._now += 0.001
            self._dispatcher.step()
            while self._requests:
                request = self._requests.popleft()
                self._queue.put_page(self._reader.carry_out(request))
            while self._settlements:
                attempt = Attempt(self._settlements.popleft())
                self._settler.advance(attempt)
                self._queue.put_settled(attempt.settled())

    def _settings(self) -> RelaySettings:
        rows, window = OPTIONS.MARK_BATCH, float(OPTIONS.MAX_IN_FLIGHT)
        if self._is_exactly_once:
            rows, window = OPTIONS.TRANSACTION_BATCH, inf
        return RelaySettings(
            page_rows=rows,
            page_bytes=OPTIONS.page_bytes,
            max_in_flight=window,
            needs_proof=not self._is_exactly_once,
            delivery_timeout=5.0,
            busy_interval=0.01,
            idle_interval=0.1,
            retry=RetryPolicy(backoff=1.0, backoff_max=8.0, attempts=0),
        )

    def _sender(self, settings: RelaySettings, engine: Engine) -> Sender:
        if not self._is_exactly_once:
            return Pipeline(
                settings,
                engine=engine,
                make_producer=lambda _: kafka_producer.KafkaProducer(OPTIONS),
                is_trusted=self._is_trusted,
                clock=self._clock,
            )
        return LedgerSender(
            settings,
            engine=engine,
            transactions=kafka_transactions.KafkaTransactions(
                OPTIONS, fencing_token=None, origin=0
            ),
            queue=self._queue,
            is_trusted=self._is_trusted,
            clock=self._clock,
        )

    def _clock(self) -> float:
        return self._now


LAST = Ledger(timeline=InMemoryUnmarked().database_timeline(), records=[])


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_producer, "Client", Client)
    monkeypatch.setattr(kafka_transactions, "Client", Client)
    monkeypatch.setattr(ledger_partitions, "ensure_topic", lambda *_, **__: 1)
    monkeypatch.setattr(LedgerPartitions, "tail", lambda *_: LedgerTail(LAST))
    monkeypatch.setattr(kafka_transactions, "drop", lambda _: None)


@pytest.fixture(params=["at-least-once", "exactly-once"])
def delivery(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def per_record(count: Callable[[Callable[[], None]], int], delivery: str) -> float:
    """Return what a record adds."""
    many, few = (count(Harvest(delivery, records).run) for records in (MANY, FEW))
    return (many - few) / (MANY - FEW)


def test_a_record_costs_few_calls(delivery: str) -> None:
    assert per_record(calls_of, delivery) <= MAX_CALLS[delivery]


def test_a_record_costs_few_instructions(delivery: str) -> None:
    assert per_record(instructions_of, delivery) <= MAX_INSTRUCTIONS[delivery]


def test_a_thousand_records_cost_few_statements(delivery: str) -> None:
    harvest = Harvest(delivery, MANY)
    harvest.run()

    sent = harvest.statements.total()
    assert sent / MANY * 1000 <= MAX_STATEMENTS[delivery], harvest.statements
