"""What a test has stashed, as values that read well in assertions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ..models import OutboxRecord, ParkedRecord, StagedRecord
from ..stashing.writing import to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class StashedMessage:
    """One row of the outbox, of the staged messages, or of the parked ones."""

    topic: str
    key: str
    value: Any
    """Decoded if it is JSON, else the text; bytes; None for a tombstone."""
    headers: tuple[tuple[str, str | None], ...]
    """The application's own, in their order."""
    partition: int | None
    """The partition that was chosen; None: the key decides."""
    message_id: UUID
    is_staged: bool = False
    """Whether it waits for its series or its date."""
    attempts: int = 0
    """Deliveries that have failed."""
    last_error: str = ""
    """Code and text of the last failure."""

    def header(self, name: str) -> str | None:
        """Return the last header of this name; None if there is none."""
        return dict(self.headers).get(name)

    def __str__(self) -> str:
        parts = [self.topic, f"key={self.key!r}", f"value={_shown(self.value)}"]
        if self.headers:
            parts.append(f"headers={_shown(dict(self.headers))}")
        if self.partition is not None:
            parts.append(f"partition={self.partition}")
        return " ".join([*parts, *(["(staged)"] if self.is_staged else [])])


def waiting_messages(alias: str) -> list[StashedMessage]:
    """Return the messages that wait, oldest first, then the staged ones."""
    records = OutboxRecord.objects.using(alias).order_by("id")
    staged = StagedRecord.objects.using(alias).order_by("staged_id")
    return [*map(_message, records), *map(_message, staged)]


def parked_messages(alias: str) -> list[StashedMessage]:
    """Return the messages that were parked, in the order of their parking."""
    rows = ParkedRecord.objects.using(alias).order_by("parked_id")
    return [*map(_message, rows)]


def _message(row: OutboxRecord | StagedRecord | ParkedRecord) -> StashedMessage:
    is_staged = isinstance(row, StagedRecord)
    raw = row.kafka_value_bytes
    return StashedMessage(
        topic=row.kafka_topic,
        key=row.kafka_key,
        value=_decoded(row.kafka_value) if raw is None else bytes(raw),
        headers=tuple(zip(row.kafka_header_keys, row.kafka_header_values, strict=True)),
        partition=row.kafka_partition,
        message_id=row.message_id,
        is_staged=is_staged,
        attempts=0 if isinstance(row, StagedRecord) else row.attempts,
        last_error="" if isinstance(row, StagedRecord) else row.last_error,
    )


def _decoded(text: str | None) -> Any:
    try:
        value = None if text is None else json.loads(text)
    except ValueError:
        return text
    # None is a tombstone, and the text "null" is none.
    return text if value is None else value


def _shown(value: Any) -> str:
    try:
        return repr(value) if isinstance(value, bytes) else to_json(value)
    except ValueError:
        # JSON has no NaN, but what was stashed as text may be read as one.
        return repr(value)
