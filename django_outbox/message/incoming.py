"""
A message as a handler gets it, and one as it goes out again: plain values.

`kafka/conversion.py` makes the first, `consuming/` hands it on. Nothing here
knows Django or a driver, so that handlers are tested with values made by hand.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""(topic, partition)."""

BEGINNING: Final = -2
"""In the place of an offset: the first that the partition still has."""

LONGEST_ID: Final = 255
"""Bytes of a message id that is taken for one."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedMessage:
    """One message of a topic. Its `repr` shows neither key nor value nor headers."""

    topic: str
    partition: int = 0
    offset: int = 0
    key: bytes | None = field(default=None, repr=False)
    value: bytes | None = field(default=None, repr=False)
    """None is a tombstone."""
    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), repr=False)
    """In their order; a name may come twice."""
    timestamp: datetime | None = None
    """When it was produced, or appended, as the topic is configured."""

    def header(self, name: str) -> str | None:
        """
        Return the *last* header of this name; None without one, or if it is no text.

        The last, since the harvester writes its own headers behind the user's.
        """
        for found, value in reversed(self.headers):
            if found == name:
                return _decoded(value)
        return None

    @property
    def message_id(self) -> str | None:
        """The idempotency key that its sender gave it, if it did."""
        text = self.header("outbox-message-id") or ""
        is_usable = text.isprintable() and len(text.encode()) <= LONGEST_ID
        return (text or None) if is_usable else None

    @property
    def identity(self) -> str:
        """
        The message id, else its place in Kafka: the same each time it is read.

        Its timestamp is part of the place, because a topic that was deleted
        and made anew counts its offsets from zero again.
        """
        if self.message_id is not None:
            return self.message_id
        moment = ""
        if self.timestamp is not None:
            moment = f"@{(self.timestamp - _EPOCH) // timedelta(milliseconds=1)}"
        return f"{self.topic}/{self.partition}/{self.offset}{moment}"

    @property
    def source(self) -> str | None:
        """Which outbox it came from."""
        return self.header("outbox-source")

    @property
    def created_at(self) -> datetime | None:
        """When its row was written to the outbox."""
        text = self.header("outbox-created-at") or ""
        if not (text.isascii() and text.isdigit() and len(text) < 18):
            return None
        return _EPOCH + timedelta(microseconds=int(text))

    @property
    def is_tombstone(self) -> bool:
        """Whether it deletes its key in a compacted topic."""
        return self.value is None

    @property
    def topic_partition(self) -> TopicPartition:
        """Its topic and partition."""
        return (self.topic, self.partition)

    def key_text(self) -> str:
        """Return the key as text, empty without one."""
        return (self.key or b"").decode()

    def text(self) -> str:
        """Return the value as text, empty for a tombstone."""
        return (self.value or b"").decode()

    def json(self) -> Any:
        """Return what the value says in JSON; None for a tombstone."""
        return None if self.value is None else json.loads(self.value)


class OutgoingMessage(NamedTuple):
    """What a consumer sends by itself, past the outbox: output or dead letter."""

    topic: str
    key: str | bytes | None
    value: str | bytes | None
    headers: list[tuple[str, str | bytes | None]]
    partition: int | None = None
    """None: where the key belongs."""


class PartitionState(NamedTuple):
    """What Kafka has of a partition."""

    topic_id: str
    """Differs between topics of one name; "" from brokers before 2.8."""
    low: int
    """The first offset that is still there."""
    high: int
    """The offset behind the last message."""


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        # Two ids with replaced characters could look the same.
        return None
