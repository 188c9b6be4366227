"""
The log as lines for people, in which exceptions cannot forge other lines.

The text of an exception may quote a message that somebody else has written. A
traceback is therefore indented, free of control characters and bounded in size.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final, TypeAlias

LONGEST_TRACEBACK: Final = 16_000
"""Characters of a traceback; the middle of a longer one is left out."""

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None]
    | tuple[None, None, None]
)


class TextFormatter(logging.Formatter):
    """A formatter whose tracebacks look like nothing else in the log."""

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802  # logging's name
        text = shortened(super().formatException(ei))
        return "\n".join(f"    {_visible(line)}" for line in text.split("\n"))


def shortened(text: str) -> str:
    """Return a traceback without the middle of a very long one."""
    if len(text) <= LONGEST_TRACEBACK:
        return text
    half = LONGEST_TRACEBACK // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"


def _visible(line: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
