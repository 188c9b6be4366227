"""A dispatcher of the ledger relay, on fakes of table and Kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django_outbox.kafka import ledger_topic as ledgers
from django_outbox.message.headers import texts
from django_outbox.relay.dispatcher import Dispatcher, Sender
from django_outbox.relay.engine import Engine
from django_outbox.relay.lease import Lease, Trust
from django_outbox.relay.ledger.ledger_sender import LedgerSender
from django_outbox.relay.ledger.takeover_sender import TakeoverSender
from django_outbox.relay.memory_marks import MemoryMarks
from django_outbox.relay.page_reader import PageReader
from django_outbox.relay.page_request import PageRequest
from django_outbox.relay.polling import PollSchedule
from django_outbox.relay.settings import RelaySettings
from django_outbox.relay.settlement import Settlement
from django_outbox.relay.settler import Attempt, Settler
from django_outbox.relay.work_queue import WorkQueue
from django_outbox.settings.options import OutboxSettings
from tests.fakes.producer import InMemoryLog, InMemoryMessage, named
from tests.fakes.transactions import InMemoryTransactions
from tests.fakes.transactor import Transactor
from tests.fakes.unmarked import InMemoryUnmarked

from .leading import Leadership
from .samples import relay_settings

LEDGER_TOPIC = named(OutboxSettings()).ledger_topic


@dataclass
class Cluster:
    """What outlives a process: table and log."""

    table: InMemoryUnmarked = field(default_factory=InMemoryUnmarked)
    log: InMemoryLog = field(default_factory=InMemoryLog)
    transactor: Transactor = field(default_factory=Transactor)

    def transactions(self) -> InMemoryTransactions:
        return InMemoryTransactions(self.log, self.transactor)

    def transactions_of(self, shard: int, shards: int) -> InMemoryTransactions:
        options = OutboxSettings(SHARDS=shards)
        return InMemoryTransactions(self.log, self.transactor, options, shard=shard)

    def insert(self, *values: str, key: str = "k") -> None:
        for value in values:
            self.table.insert("t", key, value)

    @property
    def seen(self) -> list[str]:
        """The values that a reader of committed records sees."""
        return [(message.value or b"").decode() for message in self.log.of("t")]

    @property
    def left(self) -> list[int]:
        """Ids of the rows in the table."""
        return [record.id for record in self.table.records()]

    @property
    def ledgers(self) -> list[InMemoryMessage]:
        """Those of shard 0; the topic has announcements, too."""
        return [one for one in self.log.of(LEDGER_TOPIC) if one.key == b"0"]

    @property
    def ledger(self) -> list[int]:
        """The ids that the last ledger lists."""
        last = self.ledgers[-1]
        ledger = ledgers.decode(texts(last.headers), last.value)
        return [record.id for record in ledger.records]

    @property
    def transactions_done(self) -> int:
        """How many transactions were committed."""
        return len(self.ledgers)


class LedgerBench:
    """
    A dispatcher, its page reader, and a settler that a test may stop.

    Args:
        is_own: whether the records are this cluster's; else they are taken over.
        shard: which one it leads, and of how many.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        is_own: bool = True,
        shard: tuple[int, int] | None = None,
        **changes: Any,
    ) -> None:
        self.now = 100.0
        self.cluster = cluster
        self.leadership = Leadership()
        table, self.transactions = cluster.table, cluster.transactions()
        if shard is not None:
            table = table.of_shard(*shard)
            self.transactions = cluster.transactions_of(*shard)
            changes["shards"] = shard[1]
        self.requests: deque[PageRequest] = deque()
        self.settlements: deque[Settlement] = deque()
        self.asked: list[PageRequest] = []
        self.is_settling = True
        self.is_trusted = Trust(self.leadership, self.clock)
        self.schedule = PollSchedule(busy_interval=0.01, idle_interval=0.1)
        marks = MemoryMarks(
            table,
            clock=self.clock,
            timeline=table.database_timeline,
            by_scans=not is_own,
        )
        self.reader = PageReader(marks, is_trusted=self.is_trusted, clock=self.clock)
        self.settler = Settler(
            outbox=cluster.table, on_parked=lambda *_: None, clock=self.clock
        )
        self.attempt: Attempt | None = None
        self.queue = WorkQueue(
            read=self.requests.append,
            settle=self.settlements.append,
            wake=lambda: None,
        )
        own = {"page_rows": 10, "needs_proof": False, "by_scans": not is_own}
        settings = relay_settings(**own | changes)
        self.engine = Engine(settings)
        self.sender = LedgerSender(
            settings,
            engine=self.engine,
            transactions=self.transactions,
            queue=self.queue,
            is_trusted=self.is_trusted,
            clock=self.clock,
            is_own=is_own,
        )
        self.dispatcher = Dispatcher(
            settings,
            engine=self.engine,
            sender=self.sender if is_own else self._taking_over(settings),
            lease=Lease(
                self.leadership,
                outages=(self.reader.outage, self.settler.outage),
                deadline=10.0,
            ),
            queue=self.queue,
            schedule=self.schedule,
            clock=self.clock,
        )

    def _taking_over(self, settings: RelaySettings) -> Sender:
        return TakeoverSender(
            settings,
            engine=self.engine,
            sender=self.sender,
            transactions=self.transactions,
            queue=self.queue,
            schedule=self.schedule,
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

    def prove(self) -> None:
        """Let any number of records of a key go in one transaction."""
        self.engine.waiting.proven_topics = {"t"}

    def intercept(self, send: Callable[..., Any]) -> None:
        """Have transactions sent by a function of the test; it gets the real one."""
        real = self.transactions.send
        self.transactions.send = lambda *a, **named: send(real, *a, **named)  # type: ignore[method-assign]
