"""
How a verb of `manage.py outbox` answers: lines for people, or one JSON document.

Text of rows is escaped here before it reaches a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from ..wording import printable


class Answer:
    """
    What a verb says; `finish()` ends it, after an error, too.

    Args:
        write: writes a line to standard output.
        is_json: write nothing but the document.
    """

    def __init__(
        self, write: Callable[[str], object], *, is_json: bool, **document: Any
    ) -> None:
        self.document = document
        """The answer for machines: what was done so far."""
        self._write = write
        self._is_json = is_json

    def say(self, *lines: str) -> None:
        """Show lines to people at once, so that they see how far a verb is."""
        for line in lines:
            self._write_line(printable(line))

    def say_sql(self, statements: Iterable[str]) -> None:
        """Show statements to people as they can be run."""
        for statement in statements:
            self._write_line(statement)

    def finish(self) -> None:
        """Write the document, if it is wanted."""
        if self._is_json:
            self._write(json.dumps(self.document))

    def _write_line(self, line: str) -> None:
        if not self._is_json:
            self._write(line)
