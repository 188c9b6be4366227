"""What an operator has paused: topics, single keys, or the whole outbox."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from .record import OrderingKey, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """All pauses of one outbox; their records stay in the table."""

    is_all: bool = False
    """Whether every record is paused."""
    topics: frozenset[str] = frozenset()
    keys: frozenset[OrderingKey] = frozenset()

    @classmethod
    def of(cls, rows: Collection[tuple[str, str | None]]) -> Pauses:
        """Make them of rows of the table: topic and key, empty and null for all."""
        return cls(
            is_all=any(not topic for topic, _ in rows),
            topics=frozenset(topic for topic, key in rows if topic and key is None),
            keys=frozenset((topic, key) for topic, key in rows if key is not None),
        )

    def __len__(self) -> int:
        return self.is_all + len(self.topics) + len(self.keys)

    def __str__(self) -> str:
        """Name them without keys, which are part of the payload."""
        names = sorted(self.topics)
        if self.keys:
            names.append(f"{len(self.keys)} single keys")
        return "everything" if self.is_all else ", ".join(names) or "nothing"

    def holds(self, record: Record) -> bool:
        """Whether this record is paused."""
        return (
            self.is_all
            or record.topic in self.topics
            or (record.topic, record.key) in self.keys
        )

    def includes(self, other: Pauses) -> bool:
        """Whether every record that the other ones hold is held by these."""
        if self.is_all or other.is_all:
            return self.is_all
        left = [key for key in other.keys if key[0] not in self.topics]
        return other.topics <= self.topics and self.keys.issuperset(left)


NOTHING_PAUSED: Final = Pauses()
