"""
Compares what was promised with what is in the log.

Everything is counted by message id, from the topic's beginning to its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import Message

from tests.services import text_of

from .murmur2 import partition_of
from .writing import Ledger, Writers

PARTITIONS = 3
"""Of the topics that are audited."""

OURS = ["outbox-message-id", "outbox-id", "outbox-source", "outbox-created-at"]


@dataclass(frozen=True)
class Delivery:
    """A message, read."""

    id: int
    message_id: str
    topic: str
    partition: int
    offset: int
    key: str
    value: bytes | None
    headers: list[tuple[str, str | None]]
    appended_at: float = 0.0
    """Seconds of the wall clock, as the topic's time stamps have it."""

    def header(self, name: str) -> str | None:
        return dict(self.headers)[name]


def deliveries(messages: Iterable[Message]) -> list[Delivery]:
    return [read(message) for message in messages]


def read(message: Message) -> Delivery:
    headers = [
        (name, None if text is None else text_of(text))
        for name, text in message.headers() or []
    ]
    ours = dict(headers)
    key, value = message.key(), message.value()
    assert isinstance(key, bytes)
    assert value is None or isinstance(value, bytes)
    return Delivery(
        id=int(ours["outbox-id"] or ""),
        message_id=ours["outbox-message-id"] or "",
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=key.decode(),
        value=value,
        headers=headers,
        appended_at=message.timestamp()[1] / 1000,
    )


@dataclass
class Audit:
    """Each list holds what breaks one promise; `duplicates` counts."""

    lost: list[int] = field(default_factory=list)
    """Ids that were committed and are not in the log."""
    phantoms: list[int] = field(default_factory=list)
    """Ids that are in the log and were never committed."""
    out_of_order: list[int] = field(default_factory=list)
    """Ids whose first delivery came after that of a later id of their key."""
    regressed: list[int] = field(default_factory=list)
    """Ids of repeats that are not where they may be."""
    spoilt: list[int] = field(default_factory=list)
    """Ids whose key, value, headers or partition are not what was written."""
    duplicates: int = 0
    """Deliveries beyond the first of each message."""

    @property
    def broken(self) -> dict[str, list[int]]:
        """The promises that hold whatever happens, where they do not."""
        names = ("lost", "phantoms", "out_of_order", "regressed", "spoilt")
        return {name: ids for name in names if (ids := getattr(self, name))}


class Audited(Protocol):
    """Audits the topic of a test against what its writers have committed."""

    def __call__(self, writers: Writers, *, is_pipelined: bool = True) -> Audit: ...


class Run:
    """The deliveries of one key, to see whether repeats follow their order."""

    def __init__(self) -> None:
        self._firsts: dict[int, int] = {}
        self._last = -1

    def goes_on_with(self, id: int) -> bool:
        """Whether a record follows the last one, or goes back to one before it."""
        place = self._firsts.setdefault(id, len(self._firsts))
        last, self._last = self._last, place
        return place <= last + 1


def audit(
    ledger: Ledger,
    deliveries: Iterable[Delivery],
    *,
    partitions: int = PARTITIONS,
    is_pipelined: bool = True,
) -> Audit:
    """
    Audit one topic, given what it holds in the order of each partition.

    Only the last record of a key may be repeated at once; with `is_pipelined` several
    of its last ones, in their order: 1 2 3 | 2 3 4.
    """
    found = Audit()
    seen: set[str] = set()
    highest: defaultdict[str, int] = defaultdict(int)
    runs: defaultdict[str, Run] = defaultdict(Run)
    for delivery in deliveries:
        promise = ledger.committed.get(delivery.message_id)
        if promise is None:
            found.phantoms.append(delivery.id)
            continue
        expected = [
            *(("kind", "test"), ("trace", promise.key)),
            *(
                ("outbox-message-id", promise.message_id),
                ("outbox-id", str(promise.id)),
            ),
        ]
        if (
            delivery.key != promise.key
            or delivery.value != promise.value.encode()
            or delivery.headers[:4] != expected
            or delivery.partition != partition_of(promise.key.encode(), partitions)
        ):
            found.spoilt.append(promise.id)
        in_order = runs[promise.key].goes_on_with(promise.id)
        if not (in_order if is_pipelined else promise.id >= highest[promise.key]):
            found.regressed.append(promise.id)
        if delivery.message_id in seen:
            found.duplicates += 1
        elif promise.id < highest[promise.key]:
            found.out_of_order.append(promise.id)
        seen.add(delivery.message_id)
        highest[promise.key] = max(highest[promise.key], promise.id)
    found.lost = sorted(
        promise.id
        for message_id, promise in ledger.committed.items()
        if message_id not in seen
    )
    return found
