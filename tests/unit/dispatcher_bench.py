"""A dispatcher on a table and a producer of the test's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_outbox.exceptions import DatabaseBusy, DatabaseUnavailable
from django_outbox.message.pauses import NOTHING_PAUSED, Pauses
from django_outbox.message.record import KeyToRead, OrderingKey, Record, Sweep
from django_outbox.relay.availability import Availability
from django_outbox.relay.dispatcher import Dispatcher
from django_outbox.relay.engine import Engine
from django_outbox.relay.lease import Lease, Trust
from django_outbox.relay.page_reader import PageReader
from django_outbox.relay.page_request import PageRequest
from django_outbox.relay.pipeline import Pipeline
from django_outbox.relay.polling import PollSchedule
from django_outbox.relay.settlement import Settlement
from django_outbox.relay.work_queue import WorkQueue
from tests.fakes.settling import settled

from .leading import Leadership
from .manual_producer import ManualProducer
from .samples import relay_settings


class MarkedRows:
    """Rows and who marked them."""

    def __init__(self) -> None:
        self.rows: dict[int, Record] = {}
        self.marks: dict[int, str] = {}
        self.resets: list[OrderingKey] = []
        self.sweeps: list[Sweep] = []
        self.paused = NOTHING_PAUSED
        self.is_away = False
        """Every call fails."""
        self.is_locked = False
        """Every call waits for a lock until the time-out."""

    def begin(self) -> None:
        """Marks carry a leader id: there is nothing to forget."""

    def mark(
        self, leader_id: str, *, limit: int, sweep: Sweep | None = None
    ) -> list[Record]:
        self.ping()
        if sweep is not None:
            self.sweeps.append(sweep)
            return []
        mine = [i for i in sorted(self.rows) if self.marks.get(i) != leader_id][:limit]
        self.marks.update(dict.fromkeys(mine, leader_id))
        return [self.rows[i] for i in mine]

    def reset(self, leader_id: str, keys: Sequence[KeyToRead]) -> None:
        self.ping()
        ordering_keys = [key for key, _ in keys]
        self.resets += ordering_keys
        for i, row in self.rows.items():
            if row.ordering_key in ordering_keys and self.marks.get(i) == leader_id:
                del self.marks[i]

    def ping(self) -> None:
        if self.is_away:
            raise DatabaseUnavailable("away")
        if self.is_locked:
            raise DatabaseBusy("a lock")

    def pauses(self) -> Pauses:
        self.ping()
        return self.paused

    def timeline(self) -> str:
        return "1"


class Bench:
    """A dispatcher with its pipeline, and all that they touch."""

    def __init__(self, *, marks_in_table: bool = True, **changes: Any) -> None:
        self.now = 1.0
        self.leadership = Leadership()
        self.table = MarkedRows()
        self.producers: list[ManualProducer] = []
        self.submitted: list[Settlement] = []
        self.requests: list[PageRequest] = []
        self.wakes: list[float] = []
        self.settling = Availability()
        """The table, as the thread sees it that settles."""
        is_trusted = Trust(self.leadership, self.clock)
        settings = relay_settings(
            **{
                "page_rows": 10,
                "max_in_flight": 100,
                "marks_in_table": marks_in_table,
                "max_in_flight_per_key": int(marks_in_table),
            }
            | changes
        )
        self.engine = Engine(settings)
        self.reader = PageReader(self.table, is_trusted=is_trusted, clock=self.clock)
        self.queue = WorkQueue(
            read=self.requests.append,
            settle=self.submitted.append,
            wake=lambda: self.wakes.append(self.now),
        )
        self.schedule = PollSchedule(busy_interval=0.01, idle_interval=0.1)
        self.dispatcher = Dispatcher(
            settings,
            engine=self.engine,
            sender=Pipeline(
                settings,
                engine=self.engine,
                make_producer=self.make_producer,
                is_trusted=is_trusted,
                clock=self.clock,
            ),
            lease=Lease(
                self.leadership,
                outages=(self.reader.outage, self.settling),
                deadline=5.0,
            ),
            queue=self.queue,
            schedule=self.schedule,
            clock=self.clock,
        )

    def clock(self) -> float:
        return self.now

    def make_producer(self, topic: str) -> ManualProducer:
        self.producers.append(ManualProducer())
        self.producers[-1].proven_topics.add("t")
        return self.producers[-1]

    @property
    def producer(self) -> ManualProducer:
        """The producer in use."""
        return self.producers[-1]

    @property
    def sent(self) -> list[list[int]]:
        """Ids of all that each producer has queued."""
        return [producer.sent for producer in self.producers]

    def stash(self, *rows: Record) -> None:
        self.table.rows.update({row.id: row for row in rows})

    def step(self, *, after: float = 0.2) -> None:
        """Do a round, and another one for each request that it makes."""
        self.now += after
        self.dispatcher.step()
        while self.requests:
            self.carry_out()
            self.dispatcher.step()

    def carry_out(self) -> None:
        self.queue.put_page(self.reader.carry_out(self.requests.pop()))

    def settle(self) -> None:
        """Carry out all settlements, as a table without faults would."""
        submitted = self.submitted.copy()
        self.submitted.clear()
        for settlement in submitted:
            for row in settlement.acknowledged:
                del self.table.rows[row.id]
            self.queue.put_settled(settled(settlement))
