"""
What becomes of a message that keeps failing: a letter that says why.

It keeps its key, value and headers, so that it can be sent again: its message
id is still its own, and has not been claimed by the consumer that gave it up.
"""

from __future__ import annotations

from typing import Final

from ..consumed import ConsumedMessage, Letter

LONGEST_REASON: Final = 1000
"""Characters of the exception's text that are kept."""

PREFIX: Final = "outbox-dlt-"
"""Of the headers that say why; those of an earlier failure are replaced."""


def dead_letter(
    message: ConsumedMessage,
    *,
    topic: str,
    group: str,
    error: BaseException,
    attempts: int,
) -> Letter:
    """Return what to write to the dead letter topic."""
    why = {
        "group": group,
        "topic": message.topic,
        "partition": str(message.partition),
        "offset": str(message.offset),
        "attempts": str(attempts),
        "error": type(error).__qualname__,
        "reason": str(error)[:LONGEST_REASON].encode(errors="replace").decode(),
    }
    kept: list[tuple[str, str | bytes | None]] = [
        (name, value) for name, value in message.headers if not name.startswith(PREFIX)
    ]
    told = [(PREFIX + name, text) for name, text in why.items()]
    return Letter(topic, message.key, message.value, [*kept, *told])
