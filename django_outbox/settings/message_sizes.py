"""How large a message may be, apart from its value."""

from __future__ import annotations

from typing import Final

from .options import OutboxSettings

MAX_KEY_LENGTH: Final = 255
"""Characters of a key: the width of its column."""

MAX_HEADERS: Final = 100
"""Largest number of headers of one message."""

MAX_HEADERS_BYTES: Final = 32_768
"""Largest size of all header names and values of one message, in bytes of UTF-8."""

_CHARACTER_BYTES: Final = 4
"""Most bytes of a character in UTF-8."""

_OVERHEAD: Final = 4_096
"""Bytes of the outbox's own headers, and of Kafka's framing of a batch."""


def largest_message(options: OutboxSettings) -> int:
    """Return the bytes of the largest message that `stash()` accepts, rounded up."""
    key = _CHARACTER_BYTES * MAX_KEY_LENGTH
    return options.MAX_VALUE_BYTES + key + MAX_HEADERS_BYTES + _OVERHEAD
