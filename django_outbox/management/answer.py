"""
The output of `manage.py outbox`: lines for people, or one JSON document.

Text of rows is escaped before it reaches a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from ..wording import printable, rfc_3339


class Answer:
    """
    The output of one subcommand; `finish()` ends it, also after an error.

    Args:
        write: writes a line to standard output.
        flush: brings what was written to its reader, who may be another process.
        is_json: write only the document.
        encoding: of standard output; what it does not have is escaped.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        *,
        is_json: bool,
        flush: Callable[[], object] = lambda: None,
        encoding: str = "utf-8",
        **document: Any,
    ) -> None:
        self.document = document
        """The answer for machines: the results so far."""
        self.is_json = is_json
        self.flush = flush
        self._write = write
        self._encoding = encoding
        self._is_streaming = False

    def say(self, *lines: str) -> None:
        """Show lines to people at once, so that they see the progress."""
        for line in lines:
            self._write_line(printable(line))

    def say_sql(self, statements: Iterable[str]) -> None:
        """Show statements to people, unescaped, so that they can be run."""
        for statement in statements:
            self._write_line(statement)

    def stream(self, document: dict[str, Any], *lines: str) -> None:
        """Show one of many results: its lines, or its document on one line."""
        self._is_streaming = True
        self.say(*lines)
        if self.is_json:
            self._write(json.dumps(document, default=_plain))
        self.flush()

    def finish(self) -> None:
        """Write the document, if JSON was requested and was not streamed."""
        if self.is_json and not (self._is_streaming and "error" not in self.document):
            self._write(json.dumps(self.document, default=_plain))

    def _write_line(self, line: str) -> None:
        if not self.is_json:
            encoded = line.encode(self._encoding, "backslashreplace")
            self._write(encoded.decode(self._encoding))


def _plain(value: object) -> str:
    """Return what JSON has no type for: times as RFC 3339, ids as text."""
    return rfc_3339(value) if isinstance(value, datetime) else str(value)
