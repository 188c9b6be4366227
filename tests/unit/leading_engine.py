"""An engine whose batches end as a test says, without any producer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_outbox.exceptions import DeliveryFailed
from django_outbox.message.record import Record
from django_outbox.relay.batch import Batch, Fault
from django_outbox.relay.engine import Engine
from django_outbox.relay.settlement import Settlement
from tests.fakes.settling import settled

from .samples import relay_settings

LATE = DeliveryFailed("timed out", code="_MSG_TIMED_OUT")


class LeadingEngine(Engine):
    """Leads under the id "me"; all partitions of the topic "t" are proven."""

    def __init__(self, *records: Record, **changes: Any) -> None:
        super().__init__(relay_settings(**changes))
        self.waiting.proven_topics = {"t"}
        self.begin("me")
        self.found(records)

    def sent(self, most: int = 100) -> Batch:
        """Take a batch, which there has to be."""
        batch = self.take(most, 0.0)
        assert batch is not None, "nothing may go"
        return batch

    def ids(self, most: int = 100) -> list[int]:
        """Take all that may go; return the ids."""
        ids = []
        while batch := self.take(most, 0.0):
            ids += [record.id for record in batch.records]
        return ids

    def end(self, batch: Batch, **errors: DeliveryFailed) -> None:
        """End a batch, with errors for the records `r1`, `r2` ..."""
        faults = [
            Fault(record, errors[f"r{record.id}"])
            for record in batch.records
            if f"r{record.id}" in errors
        ]
        failed = [fault.record for fault in faults]
        delivered = [record for record in batch.records if record not in failed]
        self.ended(batch)
        self.delivered(delivered)
        self.waiting.ended(delivered)
        self.refused(faults)

    def fail(self, record: Record, error: DeliveryFailed = LATE) -> None:
        """Show a record, send it, and let it fail."""
        self.found([record])
        batch = self.sent()
        assert [*batch.records] == [record]
        self.end(batch, **{f"r{record.id}": error})

    def settle(self, *, purged: int | None = None, now: float = 0.0) -> Settlement:
        """Carry out what was decided, as a table without faults would."""
        settlement = self.settlement()
        assert settlement is not None, "nothing was decided"
        self.settled(settled(settlement, purged=purged), now=now)
        return settlement


def ids_of(records: Sequence[Record]) -> list[int]:
    return [record.id for record in records]
