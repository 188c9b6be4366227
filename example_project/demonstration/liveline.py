"""A line of progress: updated in place on a terminal, otherwise repeated."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.status import Status

INTERVAL: Final = 5.0
"""Seconds between two lines without a terminal."""


class LiveLine:
    """
    Shows progress while the block runs.

    Args:
        console: Output.
        note: Returns a text to append to each line; may be empty.
    """

    def __init__(
        self, console: Console, *, note: Callable[[], str] = lambda: ""
    ) -> None:
        self._console = console
        self._note = note
        self._status: Status | None = None
        self._due = time.monotonic() + INTERVAL
        self._resources = ExitStack()

    def __enter__(self) -> LiveLine:
        if self._console.is_terminal:
            self._status = self._resources.enter_context(self._console.status(""))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._resources.close()

    def show(self, text: str) -> None:
        """Show this text from now on; may be called several times a second."""
        line = "; ".join(filter(None, [text, self._note()]))
        if self._status:
            # Leaves space for the spinner before it.
            self._status.update(escape(line[: self._console.width - 4]))
        elif (now := time.monotonic()) >= self._due:
            self._due = now + INTERVAL
            self._console.print(f"  {escape(line)}", soft_wrap=True)
