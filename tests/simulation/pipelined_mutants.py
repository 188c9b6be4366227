"""Deliberate bugs where any number of records of a key may be in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from django_outbox.exceptions import DeliveryFailed, RecordPoisoned
from django_outbox.message.record import Record
from django_outbox.relay.batch import Accepted, Batch, Fault
from django_outbox.relay.engine import Engine
from django_outbox.relay.pipeline import Pipeline
from django_outbox.relay.ports import Producer
from django_outbox.relay.settlement import Settled, Settlement
from django_outbox.relay.waiting_records import Waiting

from .mutant import Mutant, named
from .mutants import (
    followers_overtake_what_is_parked,
    producer_outlives_its_term,
    purged_rows_return,
    rows_taken_twice,
)

_end_each = Pipeline._end_each
_is_at_fault = Pipeline._is_at_fault
_take = Pipeline._take
_put_back = Waiting.put_back
_recall = Engine.recall


# Which records may go.


def keys_go_before_their_partition_is_proven(
    self: Waiting, records: Sequence[Record]
) -> bool:
    """Send all records of a key at once to a partition that is coming up."""
    return True


def other_clients_prove_a_partition(
    self: Pipeline, batch: Batch, faults: Sequence[Fault]
) -> None:
    """Take a record that was sent apart for a proof."""
    _end_each(self, batch, faults)
    failed = {fault.record.id for fault in faults}
    delivered = [r.ordering_key for r in batch.records if r.id not in failed]
    self._engine.waiting.prove(delivered)


def proofs_outlive_their_producer(self: Waiting) -> None:
    """Take a partition for proven that the former producer has proven."""


def followers_overtake_what_goes_apart(
    self: Waiting, queue: deque[Record], most: int
) -> list[Record]:
    """Send what is behind a record that waits for a request of its own."""
    chosen: list[Record] = []
    for record in [*queue]:
        key = record.ordering_key
        is_free = key not in self.limited and not self._goes_apart(record)
        if len(chosen) < most and is_free:
            chosen.append(record)
            queue.remove(record)
            if self._is_single(key):
                self.limited.add(key)
    return chosen


def what_has_failed_is_forgotten(self: Waiting, records: Sequence[Record]) -> None:
    """Put a record back that has failed before, and send it with all others."""
    has_retries = self._has_retries
    _put_back(self, records)
    self._has_retries = has_retries


# What became of them.


def failures_keep_their_producer(
    self: Pipeline, batch: Batch, faults: Sequence[Fault]
) -> None:
    """Go on with a producer that sends nothing behind a failure."""
    if faults:
        self._end_each(batch, faults)
    else:
        _take(self, batch, faults)


def batches_settle_in_any_order(self: Engine, batch: Batch) -> None:
    """Purge a batch while an earlier one is not acknowledged."""
    self.ended(batch)
    self.delivered(batch.records)


def neighbours_stay_together(
    self: Pipeline, record: Record, error: DeliveryFailed
) -> bool:
    """Send a batch again as it was, although one of its records was refused."""
    if isinstance(error, RecordPoisoned) and not error.is_certain:
        return False
    return _is_at_fault(self, record, error)


def deadline_is_nobodys(self: Pipeline, producer: Producer) -> None:
    """Wait for an acknowledgement, however long."""


def unparked_rows_delay_a_new_leader_id(
    self: Engine, settled: Settled
) -> Settlement | None:
    """Wait with a new leader id for rows that cannot be parked."""
    if settled.rest is not None:
        self._submitted.append(settled.rest)
    return settled.rest


# What is sent again.


def recalled_in_reverse(self: Engine, records: Sequence[Record]) -> None:
    """Send again what was under way, the last one first."""
    _recall(self, records[::-1])


def recalled_without_what_was_under_way(
    self: Engine, records: Sequence[Record]
) -> None:
    """Leave what was under way to a sweep."""
    self._under_way -= len(records)
    self.waiting.drop(records)


def recalled_behind_the_queue(self: Waiting, records: Sequence[Record]) -> None:
    """Send again what was under way, behind all that waits."""
    self.add(records)


def blocked_keys_are_recalled(self: Engine, records: Sequence[Record]) -> None:
    """Send again what lies behind a record that has failed."""
    if self.leader_id is None or self.must_refresh:
        self.waiting.drop(records)
    else:
        self.waiting.put_back(records)


def cut_batches_lose_their_rest(self: Engine, batch: Batch, accepted: Accepted) -> None:
    """Forget what a full producer has not taken."""
    rest = batch.records[accepted.queued :]
    batch.records = batch.records[: accepted.queued]
    if not accepted.queued:
        self.ended(batch)
    self._under_way -= len(rest)


MUTANTS: Final = {
    f"pipelined-{name}": mutant._replace(delivery="pipelined")
    for name, mutant in named(
        (
            Mutant(
                Waiting,
                "_are_proven",
                keys_go_before_their_partition_is_proven,
                "broker",
            ),
            Mutant(Pipeline, "_end_each", other_clients_prove_a_partition, "broker"),
            Mutant(Waiting, "disprove", proofs_outlive_their_producer, "broker"),
            Mutant(Waiting, "_choose", followers_overtake_what_goes_apart, "broker"),
            Mutant(Waiting, "put_back", what_has_failed_is_forgotten, "broker"),
            Mutant(Pipeline, "_take", failures_keep_their_producer, "broker"),
            Mutant(Engine, "done", batches_settle_in_any_order, "process"),
            Mutant(Pipeline, "_is_at_fault", neighbours_stay_together, "poison"),
            Mutant(Pipeline, "_watch", deadline_is_nobodys, "broker"),
            Mutant(Engine, "recall", recalled_in_reverse, "broker"),
            Mutant(Engine, "recall", recalled_without_what_was_under_way, "broker"),
            Mutant(Waiting, "put_back", recalled_behind_the_queue, "broker"),
            Mutant(Engine, "_put_back", blocked_keys_are_recalled, "poison"),
            Mutant(Engine, "cut", cut_batches_lose_their_rest, "broker"),
            Mutant(Engine, "refused", followers_overtake_what_is_parked, "poison"),
            Mutant(Engine, "_keep", unparked_rows_delay_a_new_leader_id, "poison"),
            Mutant(Pipeline, "stop", producer_outlives_its_term, "group"),
            Mutant(Waiting, "known_among", rows_taken_twice, "poison"),
            Mutant(Engine, "settled", purged_rows_return, "poison"),
        )
    ).items()
}
"""By name."""
