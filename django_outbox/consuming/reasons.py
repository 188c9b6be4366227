"""
Texts of a handler's exception that are safe to log and to send.

The text is the application's own and may quote a message. It is shown, because
nobody can fix an error without it, but on one line and bounded in size, so that
a message can neither forge log lines nor flood the log.
"""

from __future__ import annotations

from typing import Final

from ..wording import printable

MAX_LOGGED_BYTES: Final = 1000
"""Bytes of an exception's text in the log, at most."""


def reason(error: BaseException) -> str:
    """Return the text of an exception; empty if its `__str__` raises."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # an exception's own __str__ may raise anything
        return ""
    return text.encode(errors="replace").decode()


def bounded(text: str, limit: int) -> str:
    """Return the text, cut to `limit` bytes."""
    # Cut before encoding: the text may be very long.
    data = text[: limit + 1].encode(errors="replace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - 3].decode(errors="ignore") + "…"


def summary(error: BaseException) -> str:
    """Return the type and the text of an exception, on one line."""
    line = printable(bounded(reason(error), MAX_LOGGED_BYTES))
    name = type(error).__qualname__
    return f"{name}: {line}" if line else name
