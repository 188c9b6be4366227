"""From the driver's message to the value that handlers get."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from ..consumed import ConsumedMessage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def consumed(message: Message) -> ConsumedMessage:
    """Turn the driver's message, which must have no error, into ours."""
    kind, milliseconds = message.timestamp()
    has_time = kind != TIMESTAMP_NOT_AVAILABLE
    return ConsumedMessage(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=_headers(message),
        timestamp=_moment(milliseconds) if has_time else None,
    )


def _moment(milliseconds: int) -> datetime:
    """Return the time, or the last there is: a producer may have sent microseconds."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    # The driver's types allow for what is given to a producer, too.
    pairs = cast("Sequence[tuple[str, str | bytes | None]]", message.headers() or ())
    return tuple((name, _bytes(value)) for name, value in pairs)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
