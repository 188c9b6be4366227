"""
Compares what was promised with what is in the log.

Everything is counted by message id, from the topic's beginning to its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from confluent_kafka import Message

from tests.services import text_of

from .murmur2 import partition_of
from .writing import Ledger

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
    """Ids at which the log of a key goes back, repeats of its last one aside."""
    spoilt: list[int] = field(default_factory=list)
    """Ids whose key, value, headers or partition are not what was written."""
    duplicates: int = 0
    """Deliveries beyond the first of each message."""

    @property
    def broken(self) -> dict[str, list[int]]:
        """The promises that hold whatever happens, where they do not."""
        names = ("lost", "phantoms", "out_of_order", "regressed", "spoilt")
        return {name: ids for name in names if (ids := getattr(self, name))}


def audit(
    ledger: Ledger, deliveries: Iterable[Delivery], *, partitions: int = PARTITIONS
) -> Audit:
    """Audit one topic, given what it holds in the order of each partition."""
    found = Audit()
    seen: set[str] = set()
    highest: defaultdict[str, int] = defaultdict(int)
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
        if promise.id < highest[promise.key]:
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
