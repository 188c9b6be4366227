"""Records that are sent together, and why some of them were not delivered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..exceptions import DeliveryFailed
from ..message.record import OrderingKey, Record

ABANDONED: Final = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})
"""Codes of records that we gave up ourselves: no fault of theirs."""

TIMED_OUT: Final = "_MSG_TIMED_OUT"
"""Code of a record that was not acknowledged in time."""

NO_CLIENT: Final = "NO_CLIENT"
"""Code of records for which no Kafka client could be created."""


class Fault(NamedTuple):
    """Why one record of a batch is not in the log, or may not be."""

    record: Record
    error: DeliveryFailed


@dataclass(slots=True, eq=False, kw_only=True)
class Batch:
    """A part of a page that was given to a producer, in the order of the page."""

    records: Sequence[Record]
    taken_at: float
    """Monotonic seconds."""
    is_apart: bool = False
    """Each record goes in a request of its own, since it may be refused."""
    proves_keys: bool = False
    """Whether other records of its keys wait for its acknowledgement."""
    proven: list[OrderingKey] = field(default_factory=list)
    """Of these keys, those that the producer has seen acknowledged."""
    is_reported: bool = False
    """Whether the producer has told the outcome of every record."""
    faults: Sequence[Fault] = ()
    """Of those that may not be in the log."""


class Accepted(NamedTuple):
    """How much of a batch a producer has queued."""

    queued: int
    """Records queued, from the first one on."""
    error: DeliveryFailed | None = None
    """Why the next record was not; None: the queue is full, or all were."""
