"""
At-least-once delivery: batches through one producer, several at a time.

The producer keeps the order of each partition and sends nothing behind a record that
it could not deliver. So a failure ends the producer: what was acknowledged counts, a
record that was refused blocks its key or is parked, and all else goes again, in order,
through the next producer. What may be refused once more goes apart from the pipeline,
each record in a request of its own.

With one record of a key in flight there is nothing behind it, and a producer outlives
the failure of a record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from ..exceptions import DeliveryFailed, ProducerBroken, RecordPoisoned
from ..message.record import Record
from .batch import ABANDONED, NO_CLIENT, TIMED_OUT, Accepted, Batch, Fault
from .dispatcher import REPORT_WAIT
from .engine import Engine
from .lease import Trust
from .page_request import Page
from .ports import Producer
from .settings import RelaySettings
from .window import Window

logger = logging.getLogger(__name__)

MAX_BATCH_RECORDS: Final = 200
"""Most records of one batch: the lease is checked before each batch, and delivery
reports are served between two."""

REBUILD_PAUSE: Final = 0.5
"""Seconds from a broken producer to the next one: what it had sent may reach the log
a moment later, and what broke it may break the next one, too."""


APART_PAUSE: Final = 10.0
"""Seconds before another attempt to create the client for records that go apart. The
driver may take as long to report that one failed."""


class Pipeline:
    """
    Sends what the engine hands out.

    Args:
        make_producer: builds a producer whose first record has this topic; called on
            the thread that sends, and waits for a connection, a second at most.
        is_trusted: asked directly before each batch.
        clock: monotonic seconds.
    """

    remembers = False
    """Whether the next leader knows what is in the log and not purged."""

    def __init__(
        self,
        settings: RelaySettings,
        *,
        engine: Engine,
        make_producer: Callable[[str], Producer],
        is_trusted: Trust,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._timeout = settings.delivery_timeout
        self._window = Window(settings.delivery_timeout)
        self._most_apart = settings.max_in_flight / 2
        self._is_strict = settings.max_in_flight_per_key == 1
        """No record is behind another one of its key: each may fail by itself, and
        the producer watches the time-out."""
        self._make_producer = make_producer
        self._is_trusted = is_trusted
        self._clock = clock
        self._producer: Producer | None = None
        self._is_broken = False
        self._build_at = 0.0
        """When another producer may be built. Monotonic seconds."""
        self._apart_at = 0.0
        """When records may go apart again, for which there was no client."""
        self._delivered = 0
        """Records that the producer had delivered at the last look."""
        self._delivered_at = 0.0
        """When the last one was, or the producer was built."""
        self._is_kafka_away = False
        """Whether it was logged that nothing is acknowledged, or can be sent."""
        self._watch_at = 0.0
        """When to check next for records that are not acknowledged."""

    # The port `Sender`.

    def prepare(self, leader_id: str, now: float) -> bool:
        return True

    def admit(self, page: Page, now: float) -> Sequence[Record]:
        return page.records

    def send(self, leader_id: str, now: float) -> bool:
        """A4 to A8: send a batch of what may go; return whether there may be more."""
        engine = self._engine
        # What goes apart has a client of its own. Records of a silent topic may not
        # keep all others out, either.
        apart = sum([len(batch.records) for batch in engine.apart])
        has_room = engine.under_way - apart < self._window.limit
        engine.waiting.may_go_apart = apart < self._most_apart and now >= self._apart_at
        if engine.must_refresh or not engine.waiting or not has_room:
            return False
        producer = self._producer or self._build(now)
        # A pause or a handover may have come at any line above: check again.
        if producer is None or not self._is_trusted(leader_id):
            return False
        batch = engine.take(MAX_BATCH_RECORDS, now)
        if batch is None:
            return False
        sent = len(batch.records)
        accepted = producer.produce(batch, leader_id)
        if accepted.queued == sent:
            return True
        error = accepted.error
        is_suspect = isinstance(error, RecordPoisoned) and not error.is_certain
        if is_suspect and not batch.is_apart:
            # It goes apart, where nothing else fails with it.
            engine.waiting.suspects.add(batch.records[accepted.queued].id)
            engine.cut(batch, Accepted(accepted.queued))
            return True
        is_fatal = isinstance(error, ProducerBroken)
        if error is not None and error.code == NO_CLIENT:
            self._has_no_client(batch, error, now)
        else:
            self._is_broken |= is_fatal
        engine.cut(batch, Accepted(accepted.queued) if is_fatal else accepted)
        # When just one was refused, others may go.
        return error is not None

    def serve(self, *, is_hurried: bool) -> None:
        """Take the reports that have come; wait a moment for them unless hurried."""
        producer = self._producer
        if producer is not None:
            # An idle client is served, too: it keeps what it has to tell of an outage.
            is_hurried = is_hurried or not self._engine.under_way
            outcomes = producer.poll(0.0 if is_hurried else REPORT_WAIT)
            self._prove()
            for batch, faults in outcomes:
                self._take(batch, faults)
            self._watch(producer)
        if self._is_broken:
            self._discard()

    def stop(self, *, is_proven: bool) -> None:
        """Send no more; without a proven term, give up what is under way."""
        if not is_proven:
            # Another may lead by now: nothing queued here may reach Kafka. Nor is a
            # client kept that nobody serves.
            self._discard()

    def wait(self, now: float) -> float:
        """Return when there is something to do again, in monotonic seconds."""
        if self._engine.waiting and self._producer is None:
            return self._build_at
        return self._apart_at if now < self._apart_at else inf

    def close(self) -> None:
        """Drop the producer; the last call."""
        self._discard()

    # A producer, from its first batch to its end.

    def _build(self, now: float) -> Producer | None:
        if now < self._build_at:
            return None
        self._producer = self._make_producer(self._engine.waiting.next_topic)
        self._delivered_at, self._delivered = now, 0
        self._window = Window(self._timeout)
        self._engine.waiting.proven_topics = self._producer.proven_topics
        return self._producer

    def _has_no_client(self, batch: Batch, error: DeliveryFailed, now: float) -> None:
        """Ask for a client again after a while; no record is at fault."""
        if batch.is_apart:
            # The other client works, or will tell itself that it does not.
            self._apart_at = now + APART_PAUSE
            logger.info("Nothing can be sent apart yet: %s", error)
            return
        self._is_broken = True
        if not self._is_kafka_away:
            self._is_kafka_away = True
            logger.warning(
                "Nothing can be sent: %s", error, extra={"action": "delivery_failed"}
            )

    def _take(self, batch: Batch, faults: Sequence[Fault]) -> None:
        """Take the outcome of one batch."""
        if batch.is_apart or self._is_strict:
            self._end_each(batch, faults)
        elif faults:
            # Nothing goes out behind a failure.
            batch.faults, batch.is_reported = faults, True
            self._is_broken = True
        else:
            self._engine.done(batch)

    def _prove(self) -> None:
        """Let more go of keys that are proven, though their batch may never end."""
        for batch in self._engine.batches:
            if batch.proven:
                self._engine.waiting.prove(batch.proven)
                batch.proven.clear()

    def _end_each(self, batch: Batch, faults: Sequence[Fault]) -> None:
        """Settle each record of a batch by itself."""
        engine = self._engine
        engine.ended(batch)
        delivered = _others(batch.records, faults)
        engine.delivered(delivered)
        engine.waiting.refused_topics.difference_update([r.topic for r in delivered])
        lost = [fault for fault in faults if _is_nobodys(fault.error)]
        self._is_broken |= any(isinstance(f.error, ProducerBroken) for f in lost)
        engine.recall([record for record, _ in lost])
        engine.refused([fault for fault in faults if fault not in lost])

    def _discard(self, is_late: Callable[[Batch], bool] = lambda _: False) -> None:
        """
        End the producer, and take back in order what is not in the log.

        Args:
            is_late: whether the records of a batch have failed if they are not
                acknowledged.
        """
        producer, self._producer = self._producer, None
        self._is_broken = False
        if producer is None:
            return
        for batch, faults in producer.purge():
            if batch.is_apart:
                self._end_each(batch, faults)
            else:
                batch.faults, batch.is_reported = faults, True
        producer.close()
        self._is_broken = False
        self._build_at = self._clock() + REBUILD_PAUSE
        engine = self._engine
        engine.waiting.disprove()
        recalled: list[Record] = []
        refused: list[Fault] = []
        delivered_topics: set[str] = set()
        batches = [*engine.batches]
        engine.batches.clear()
        for batch in batches:
            delivered = _others(batch.records, batch.faults)
            engine.delivered(delivered)
            delivered_topics.update([record.topic for record in delivered])
            for record, error in batch.faults:
                if is_late(batch) and error.code in ABANDONED:
                    refused.append(Fault(record, self._late()))
                elif self._is_at_fault(record, error):
                    refused.append(Fault(record, error))
                else:
                    recalled.append(record)
        # Later records of such a topic go apart: no other one has to wait for them.
        late_topics = {r.topic for r, error in refused if error.code == TIMED_OUT}
        engine.waiting.refused_topics |= late_topics - delivered_topics
        engine.refused(refused)
        engine.recall(recalled)

    def _is_at_fault(self, record: Record, error: DeliveryFailed) -> bool:
        """Whether a record failed by itself; if it may have, have it sent apart."""
        if _is_nobodys(error):
            return False
        waiting = self._engine.waiting
        if isinstance(error, RecordPoisoned):
            if not error.is_certain:
                # One record of the batch is at fault: each is sent apart.
                waiting.suspects.add(record.id)
                return False
            # Only a topic is refused for sure in a batch of several records.
            waiting.refused_topics.add(record.topic)
        return True

    # The delivery time-out.

    def _watch(self, producer: Producer) -> None:
        """Give up a producer whose records are not acknowledged in time."""
        now, engine, delivered = self._clock(), self._engine, producer.delivered
        if delivered > self._delivered:
            # What was refused, or has timed out apart, tells nothing of the others.
            self._delivered_at, self._is_kafka_away = now, False
            self._window.acknowledged(delivered - self._delivered, now)
            self._delivered = delivered
        if now < self._watch_at or not engine.batches or self._is_strict:
            return
        self._watch_at = now + self._timeout / 20
        if engine.batches[0].taken_at > now - self._timeout:
            return
        are_others_delivered = now - self._delivered_at < self._timeout
        if not (are_others_delivered or self._is_kafka_away):
            self._is_kafka_away = True
            logger.warning(
                "Kafka has acknowledged nothing for %.0f s; %d records are sent again",
                self._timeout,
                engine.under_way,
                extra={"action": "delivery_failed", "records": engine.under_way},
            )
        self._discard(
            lambda batch: are_others_delivered and batch.taken_at <= now - self._timeout
        )

    def _late(self) -> DeliveryFailed:
        text = f"not acknowledged within {self._timeout:.0f} s"
        return DeliveryFailed(text, code=TIMED_OUT)


def _is_nobodys(error: DeliveryFailed) -> bool:
    """Whether a record has failed with its producer, and by no fault of its own."""
    return isinstance(error, ProducerBroken) or error.code in ABANDONED


def _others(records: Sequence[Record], faults: Sequence[Fault]) -> Sequence[Record]:
    """Return the records without a fault."""
    if not faults:
        return records
    failed = {fault.record.id for fault in faults}
    return [record for record in records if record.id not in failed]
