"""
The real relay in one thread and in no time: engine, dispatcher, pipeline and settler.

Requests to the table are carried out between two rounds of the dispatcher, and the
clock moves to the moment at which the relay wants to act next.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import inf

from ..election.leadership import Leadership
from ..election.term import LeaderTerm
from ..harvester.hooked_table import HookedTable
from ..harvester.threads import parked_event
from ..harvester.wiring import pipeline_settings
from ..message.middleware import load, overriding
from ..message.record import Failure
from ..relay.dispatcher import Dispatcher
from ..relay.engine import Engine
from ..relay.lease import Lease, Trust
from ..relay.page_reader import PageReader
from ..relay.page_request import PageRequest
from ..relay.pipeline import Pipeline
from ..relay.polling import PollSchedule
from ..relay.settlement import Settlement
from ..relay.settler import Attempt, Settler
from ..relay.work_queue import WorkQueue
from ..settings.options import OutboxSettings
from .leader_signals import announce
from .memory_kafka import InMemoryKafka, InMemoryProducer
from .visible_table import VisibleTable

NAME = "testing"
"""The harvester in the events of a drain."""

LEAST_STEP = 0.001
"""Seconds by which the clock moves at least, so that each drain ends."""

IDLE_INTERVAL = 5.0
"""Seconds between two reads of a table to which nobody else writes."""


class RelayUnderTest:
    """
    One leader over the rows of a table, from its first page to an empty table.

    Args:
        options: the project's settings, with the names of the election.
    """

    def __init__(
        self, options: OutboxSettings, *, table: VisibleTable, kafka: InMemoryKafka
    ) -> None:
        self._now = 1.0
        settings = replace(
            pipeline_settings(options),
            idle_interval=IDLE_INTERVAL,
            # As of a leader whose topics are proven: records go in the order of ids.
            needs_proof=False,
        )
        leadership = Leadership(NAME, 0, on_event=lambda _: None)
        leadership.grant(LeaderTerm.begin(shard=0, now=self._now, until=inf))
        is_trusted = Trust(leadership, self._clock)
        self._requests: deque[PageRequest] = deque()
        self._settlements: deque[Settlement] = deque()
        self._queue = WorkQueue(
            read=self._requests.append,
            settle=self._settlements.append,
            wake=lambda: None,
        )
        self._engine = Engine(settings)
        hooks = overriding(load(options.MIDDLEWARE), "produce")
        self._reader = PageReader(
            HookedTable(table, hooks), is_trusted=is_trusted, clock=self._clock
        )
        self._settler = Settler(outbox=table, on_parked=_parked, clock=self._clock)
        self._dispatcher = Dispatcher(
            settings,
            engine=self._engine,
            sender=Pipeline(
                settings,
                engine=self._engine,
                make_producer=lambda _: InMemoryProducer(kafka, options),
                is_trusted=is_trusted,
                clock=self._clock,
            ),
            lease=Lease(
                leadership,
                outages=(self._reader.outage, self._settler.outage),
                deadline=options.DATABASE_DEADLINE,
            ),
            queue=self._queue,
            schedule=PollSchedule(
                busy_interval=settings.busy_interval,
                idle_interval=settings.idle_interval,
            ),
            clock=self._clock,
        )
        self._is_empty = False
        """Whether the last page had no rows."""

    def drain(self, *, seconds: float) -> None:
        """Send until nothing is left that may go, or for so long on its own clock."""
        until = self._now + seconds
        try:
            while not self._is_done() and self._now < until:
                idle = self._dispatcher.step()
                if not self._work():
                    self._now += max(idle, LEAST_STEP)
        finally:
            self._dispatcher.close()

    def _clock(self) -> float:
        return self._now

    def _is_done(self) -> bool:
        return self._engine.is_idle and self._is_empty

    def _work(self) -> bool:
        """Do what the relay's other threads do; return whether there was anything."""
        has_work = bool(self._requests or self._settlements)
        while self._requests:
            page = self._reader.carry_out(self._requests.popleft())
            if page.request.limit and page.request.sweep is None:
                self._is_empty = not page.records
            self._queue.put_page(page)
        while self._settlements:
            attempt = Attempt(self._settlements.popleft())
            self._settler.advance(attempt)
            self._queue.put_settled(attempt.settled())
        return has_work


def _parked(leader_id: str, failure: Failure) -> None:
    announce(parked_event(NAME, leader_id, failure))
