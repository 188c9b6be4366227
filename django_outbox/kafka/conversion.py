"""Converts the driver's messages to `ConsumedMessage`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from operator import methodcaller
from typing import Final, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from ..message.incoming import ConsumedMessage

logger = logging.getLogger(__name__)

_ask_headers: Final = methodcaller("headers")
"""
Calls `message.headers()` so that an error is always raised here.

After Python has specialised a plain call, a driver error in it may surface anywhere
later, and the result may have pairs without a name.
"""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def consumed(message: Message) -> ConsumedMessage:
    """Convert a message that has no error."""
    kind, milliseconds = message.timestamp()
    has_time = kind != TIMESTAMP_NOT_AVAILABLE
    return ConsumedMessage(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=headers(message),
        timestamp=_moment(milliseconds) if has_time else None,
    )


def _moment(milliseconds: int) -> datetime:
    """Return the time; the latest possible if a producer sent microseconds."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers; if the driver cannot read them, none and a warning."""
    try:
        found = _ask_headers(message)
    except SystemError:
        # The driver fails on a name that is not UTF-8; a second call would crash.
        logger.warning(
            "Cannot read the headers of message %s/%s at offset %s: a header name is "
            "not UTF-8. Delivering the message without headers",
            *(message.topic(), message.partition(), message.offset()),
            extra={"action": "headers_unreadable"},
        )
        return ()
    # The driver's types also include what producers accept.
    pairs = cast("Sequence[tuple[str, str | bytes | None]]", found or ())
    return tuple((name, _bytes(value)) for name, value in pairs)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
