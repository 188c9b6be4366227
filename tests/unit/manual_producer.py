"""A producer whose reports come when a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from django_outbox.exceptions import DeliveryFailed
from django_outbox.relay.batch import Accepted, Batch, Fault
from django_outbox.relay.ports import Outcome

PURGED = DeliveryFailed("given up", code="_PURGE_INFLIGHT")


class ManualProducer:
    """Keeps batches until the test tells the outcome of each of their records."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        """Those without an outcome, in the order in which they came."""
        self.calls: list[list[int]] = []
        """Ids of each batch that was queued, as far as it was."""
        self.apart: list[int] = []
        """Ids of the records that were queued apart."""
        self.leader_ids: set[str] = set()
        self.proven_topics: set[str] = set()
        self.room = inf
        """Records that the queue takes from now on."""
        self.refused: dict[int, DeliveryFailed] = {}
        """By id, why a record is not queued."""
        self.late: set[int] = set()
        """Ids that are acknowledged only after the last poll."""
        self.waits: list[float] = []
        """Time-outs of all polls, in seconds."""
        self.is_closed = False
        self.delivered = 0
        self._told: dict[int, DeliveryFailed | None] = {}

    # What a test does and sees.

    @property
    def sent(self) -> list[int]:
        """Ids of all that was queued, in order."""
        return [id for call in self.calls for id in call]

    def ack(self, *ids: int) -> None:
        """Have the next poll report these records as delivered, by default all."""
        told = ids or self.unacknowledged
        self.delivered += len(told)
        self._told.update(dict.fromkeys(told, None))
        for batch in self.batches:
            if batch.proves_keys:
                keys = [r.ordering_key for r in batch.records if r.id in told]
                batch.proven.extend(keys)

    def fail(self, error: DeliveryFailed, *ids: int) -> None:
        """Have the next poll report these records as failed, by default all."""
        self._told.update(dict.fromkeys(ids or self.unacknowledged, error))

    @property
    def unacknowledged(self) -> list[int]:
        """Ids of all that has no outcome yet."""
        ids = (record.id for batch in self.batches for record in batch.records)
        return [id for id in ids if id not in self._told]

    # The port.

    def produce(self, batch: Batch, leader_id: str) -> Accepted:
        assert not self.is_closed, "a closed producer takes no records"
        queued, error = 0, None
        for record in batch.records:
            if error := self.refused.get(record.id):
                break
            if queued == self.room:
                break
            queued += 1
        self.room -= queued
        if queued:
            ids = [record.id for record in batch.records[:queued]]
            self.calls.append(ids)
            self.apart += ids if batch.is_apart else []
            self.batches.append(batch)
            self.leader_ids.add(leader_id)
            for id in ids:
                self._told.pop(id, None)
        return Accepted(queued, error)

    def poll(self, timeout: float) -> Sequence[Outcome]:
        self.waits.append(timeout)
        told = self._told
        ended = [b for b in self.batches if all(r.id in told for r in b.records)]
        self.batches = [batch for batch in self.batches if batch not in ended]
        return [self._outcome(batch) for batch in ended]

    def purge(self) -> Sequence[Outcome]:
        self._told.update(dict.fromkeys(self.late))
        self.fail(PURGED)
        return self.poll(0.0)

    def close(self) -> None:
        self.is_closed = True

    def _outcome(self, batch: Batch) -> Outcome:
        told = ((record, self._told.get(record.id)) for record in batch.records)
        return batch, [Fault(record, error) for record, error in told if error]
