"""
The log as lines for people, in which text of messages cannot forge other lines.

Text of a row, or of an exception that quotes a message, may contain anything. So
every character that could end a line or control a terminal is escaped, further
lines are indented, and the size of a traceback is limited.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final

from ..wording import local_time, printable

MAX_TRACEBACK_LENGTH: Final = 16_000
"""Characters of a traceback; the middle of a longer one is left out."""


class TextFormatter(logging.Formatter):
    """Log records for people: time, level, message; further lines are indented."""

    def format(self, record: logging.LogRecord) -> str:
        time = local_time(datetime.fromtimestamp(record.created, UTC))
        first, *more = self._lines(record)
        lines = [f"{time} {record.levelname} {printable(first)}"]
        return "\n".join(lines + [f"    {printable(line)}" for line in more])

    def _lines(self, record: logging.LogRecord) -> list[str]:
        message = record.getMessage()
        # Line breaks of the format string are kept; those of arguments are escaped.
        lines = message.split("\n") if "\n" in str(record.msg) else [message]
        if record.exc_info:
            lines += shortened(self.formatException(record.exc_info)).split("\n")
        if record.stack_info:
            lines += self.formatStack(record.stack_info).split("\n")
        return lines


def shortened(text: str) -> str:
    """Return a traceback without the middle of a very long one."""
    if len(text) <= MAX_TRACEBACK_LENGTH:
        return text
    half = MAX_TRACEBACK_LENGTH // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"
