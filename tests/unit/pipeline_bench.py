"""A pipeline with an engine that leads and producers of the test's."""

from __future__ import annotations

from typing import Any

from django_outbox.exceptions import DeliveryFailed
from django_outbox.message.record import Record
from django_outbox.relay.engine import Engine
from django_outbox.relay.lease import Trust
from django_outbox.relay.pipeline import REBUILD_PAUSE, Pipeline
from django_outbox.relay.settlement import Settlement
from tests.fakes.settling import settled

from .leading import Leadership
from .manual_producer import ManualProducer
from .samples import relay_settings


class Line:
    """An engine that leads, its pipeline, and the producers that it builds."""

    def __init__(
        self, *records: Record, is_proven: bool = True, **changes: Any
    ) -> None:
        settings = relay_settings(**changes)
        self.now = 100.0
        self.is_proven = is_proven
        self.leadership = Leadership()
        self.producers: list[ManualProducer] = []
        self.refused: dict[int, DeliveryFailed] = {}
        """By id, why no producer queues a record."""
        self.engine = Engine(settings)
        self.engine.begin("id-1")
        self.engine.found(records)
        self.pipeline = Pipeline(
            settings,
            engine=self.engine,
            make_producer=self.make_producer,
            is_trusted=Trust(self.leadership, lambda: self.now),
            clock=lambda: self.now,
        )

    @property
    def producer(self) -> ManualProducer:
        return self.producers[-1]

    def make_producer(self, topic: str) -> ManualProducer:
        self.producers.append(ManualProducer())
        self.producer.refused |= self.refused
        self.producer.proven_topics |= {"t", "closed"} if self.is_proven else set()
        return self.producer

    def round(self, *, after: float = 0.0) -> None:
        """Send all that may go, and take the reports that have come."""
        self.now += after
        has_more = True
        while has_more:
            has_more = self.pipeline.send("id-1", self.now)
            self.pipeline.serve(is_hurried=has_more)

    def rebuild(self) -> None:
        """Do a round when another producer may be built."""
        self.round(after=REBUILD_PAUSE)

    def settle(self) -> Settlement:
        settlement = self.engine.settlement()
        assert settlement is not None, "nothing was decided"
        self.engine.settled(settled(settlement), now=self.now)
        return settlement

    @property
    def sent(self) -> list[list[int]]:
        """Ids of all that each producer has queued."""
        return [producer.sent for producer in self.producers]


def acknowledged(line: Line) -> list[int]:
    return [record.id for record in line.settle().acknowledged]
