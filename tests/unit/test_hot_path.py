"""
How much Python one record costs, in counts and not in seconds.

At tens of thousands of records a second each function call on a record's way
is a percent. The whole of it is real (marks in memory, dispatcher, relay,
envelope, producer, settler); only the database and the Kafka client are not,
and what they do is not counted. A bound that is broken says that the way has
become longer: shorten it, or raise the bound and say why.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import django_outbox
from django_outbox.kafka import producer as kafka_producer
from django_outbox.options import OutboxSettings
from django_outbox.records import Claim, Settlement
from django_outbox.relay.dispatch import Dispatcher
from django_outbox.relay.mark import Marker
from django_outbox.relay.memory import MemoryMarks
from django_outbox.relay.outage import Outage
from django_outbox.relay.poison import RetryPolicy
from django_outbox.relay.settings import DispatchSettings
from django_outbox.relay.settle import Settler
from django_outbox.relay.trust import Trust
from django_outbox.testing.unmarked import InMemoryUnmarked

RECORDS = 4000
KEYS = 1000
FEWER = 1000
"""The difference of two runs is what records cost, without what a start costs."""

MAX_CALLS = 31.0
"""Calls from our code for each record, of Python functions and of C's."""
MAX_INSTRUCTIONS = 510.0
"""Bytecode instructions of our code for each record."""
MAX_STATEMENTS = 4.0
"""Statements for a thousand records."""

PACKAGE = str(Path(django_outbox.__file__).parent)
FAKES = str(Path(PACKAGE, "testing"))


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


class Acknowledged:
    """A delivery report: the message has an offset."""

    def offset(self) -> int:
        return 1


class Client:
    """Kafka's client, which acknowledges all at the next poll."""

    def __init__(self, config: object) -> None:
        self._waiting: deque[Callable[..., None]] = deque()

    def produce(self, *arguments: Any, **options: Any) -> None:
        self._waiting.append(options.get("on_delivery") or arguments[4])

    def poll(self, timeout: float) -> int:
        served = len(self._waiting)
        while self._waiting:
            self._waiting.popleft()(None, MESSAGE)
        return served

    def purge(self) -> None: ...

    def __len__(self) -> int:
        return len(self._waiting)


MESSAGE = Acknowledged()


class Counted:
    """The table; each call that reaches it is a statement."""

    def __init__(self, table: InMemoryUnmarked, statements: Counter[str]) -> None:
        self._table = table
        self._statements = statements
        self.stride = table.stride

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._table, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self._statements[name] += 1
            return method(*arguments, **options)

        return call


class Harvest:
    """A leader at work on a backlog, in one thread."""

    def __init__(self, records: int) -> None:
        table = InMemoryUnmarked()
        for number in range(records):
            table.insert(
                "t", f"key-{number % KEYS}", "x" * 200, headers=[("kind", "test")]
            )
        self.statements: Counter[str] = Counter()
        self._table = table
        self._now = 1.0
        counted: Any = Counted(table, self.statements)
        leadership: Any = Leadership()
        marks = MemoryMarks(counted, clock=self._clock)
        # The port as the real adapter has it: marks in memory, writes in the table.
        outbox: Any = marks
        self._settler = Settler(
            outbox=counted, on_parked=lambda *_: None, clock=self._clock
        )
        self._marker = Marker(
            outbox=outbox,
            is_trusted=Trust(leadership, self._clock),
            clock=self._clock,
        )
        options = OutboxSettings(KAFKA={"bootstrap.servers": "nowhere:1"})
        self._claims: list[Claim] = []
        self._settlements: list[Settlement] = []
        self._dispatcher = Dispatcher(
            DispatchSettings(
                max_in_flight=options.MAX_IN_FLIGHT,
                mark_batch=options.MARK_BATCH,
                marks_in_memory=True,
                busy_interval=0.01,
                idle_interval=0.1,
                database_deadline=5.0,
                retry=RetryPolicy(
                    backoff=1.0, backoff_max=8.0, parks_poison=False, park_after=3
                ),
            ),
            leadership=leadership,
            make_producer=lambda: kafka_producer.KafkaProducer(options),
            claim=self._claims.append,
            submit=self._settlements.append,
            outages=(self._marker.outage, Outage()),
            clock=self._clock,
        )

    def run(self) -> None:
        """Relay all there is."""
        while self._table.records():
            self._now += 0.001
            self._dispatcher.step()
            while self._claims:
                claim = self._claims.pop()
                self._marker.carry_out(claim)
                self._dispatcher.claimed(claim)
            while self._settlements:
                settlement = self._settlements.pop(0)
                self._settler.settle(settlement)
                self._dispatcher.answer(settlement)

    def _clock(self) -> float:
        return self._now


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_producer, "Client", Client)


def is_ours(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(PACKAGE) and not name.startswith(FAKES)


def calls_of(run: Callable[[], None]) -> int:
    """Count calls of our functions, and those of C's that ours make."""
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event in {"call", "c_call"} and is_ours(frame):
            count += 1

    former = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(former)
    return count


def instructions_of(run: Callable[[], None]) -> int:
    """Count the instructions of our functions."""
    count = 0

    def local(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
        return local

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not is_ours(frame):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return local

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(former)
    return count


def per_record(count: Callable[[Callable[[], None]], int]) -> float:
    """Return what a record adds."""
    many, few = (count(Harvest(n).run) for n in (RECORDS, FEWER))
    return (many - few) / (RECORDS - FEWER)


def test_a_record_costs_few_calls() -> None:
    assert per_record(calls_of) <= MAX_CALLS


def test_a_record_costs_few_instructions() -> None:
    assert per_record(instructions_of) <= MAX_INSTRUCTIONS


def test_a_thousand_records_cost_few_statements() -> None:
    harvest = Harvest(RECORDS)
    harvest.run()

    sent = harvest.statements.total()
    assert sent / RECORDS * 1000 <= MAX_STATEMENTS, harvest.statements
