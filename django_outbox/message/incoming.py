"""
Messages that a consumer receives and sends, as plain values.

Independent of Django and of the driver, so that tests of handlers can create them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from ..wording import number_in
from .headers import MESSAGE_ID

TopicPartition: TypeAlias = tuple[str, int]
"""(topic, partition)."""

BEGINNING: Final = -2
"""Instead of an offset: the first offset that the partition still has."""

LONGEST_ID: Final = 255
"""Longest valid message id, in bytes."""

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
    """In order; names may repeat."""
    timestamp: datetime | None = None
    """When it was produced or appended, depending on the topic's configuration."""

    def header(self, name: str) -> str | None:
        """
        Return the *last* header of this name; None if it is absent or not UTF-8.

        The last, because the harvester appends its headers to those of the user.
        """
        for found, value in reversed(self.headers):
            if found == name:
                return _decoded(value)
        return None

    @property
    def message_id(self) -> str | None:
        """The idempotency key of the sender, or None."""
        text = self.header(MESSAGE_ID) or ""
        is_usable = text.isprintable() and len(text.encode()) <= LONGEST_ID
        return (text or None) if is_usable else None

    @property
    def identity(self) -> str:
        """
        The message id, else the position in Kafka: the same each time it is read.

        The timestamp is part of the position, because the offsets of a topic that
        was deleted and created again start at zero.
        """
        if self.message_id is not None:
            return self.message_id
        moment = ""
        if self.timestamp is not None:
            moment = f"@{(self.timestamp - _EPOCH) // timedelta(milliseconds=1)}"
        return f"{self.topic}/{self.partition}/{self.offset}{moment}"

    @property
    def source(self) -> str | None:
        """The outbox that sent it."""
        return self.header("outbox-source")

    @property
    def created_at(self) -> datetime | None:
        """When the row was written to the outbox."""
        micros = number_in(self.header("outbox-created-at") or "", 17)
        return None if micros is None else _EPOCH + timedelta(microseconds=micros)

    @property
    def is_tombstone(self) -> bool:
        """Whether it deletes the key in a compacted topic."""
        return self.value is None

    @property
    def topic_partition(self) -> TopicPartition:
        """Its topic and partition."""
        return (self.topic, self.partition)

    def key_text(self) -> str:
        """
        Return the key as text; empty without a key.

        Raises:
            UnicodeDecodeError: It is not UTF-8.
        """
        return (self.key or b"").decode()

    def text(self) -> str:
        """
        Return the value as text, empty for a tombstone.

        Raises:
            UnicodeDecodeError: It is not UTF-8.
        """
        return (self.value or b"").decode()

    def json(self) -> Any:
        """
        Parse the value as JSON; None for a tombstone.

        Raises:
            ValueError: It is not JSON.
        """
        return None if self.value is None else json.loads(self.value)


class OutgoingMessage(NamedTuple):
    """A message that a consumer sends without the outbox: output, or a dead letter."""

    topic: str
    key: str | bytes | None
    value: str | bytes | None
    headers: list[tuple[str, str | bytes | None]]
    partition: int | None = None
    """None: chosen by the key."""


class PartitionState(NamedTuple):
    """The state of a partition in Kafka."""

    topic_id: str
    """Changes when a topic is created again; "" from brokers before 2.8."""
    low: int
    """The first offset that was not deleted."""
    high: int
    """The offset after the last message."""


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        # With replacement characters two ids could be equal.
        return None
