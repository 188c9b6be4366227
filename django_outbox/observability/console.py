"""
The log on a terminal that has a live line at its bottom.

Output to the terminal has to pass through the console that draws the live line,
or it garbles that line. So the log of django_outbox is written through the console,
and so are the project's own LOGGING handlers that write to the terminal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.text import Text

_STYLES: Final = {logging.WARNING: "yellow", logging.ERROR: "red"}
"""The colour of each level; other levels have none."""


class ConsoleHandler(logging.Handler):
    """Writes log records above the live line of a console."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = Text(self.format(record), style=_STYLES.get(record.levelno, ""))
            # The terminal wraps the line, so that a copied line has no breaks.
            self._console.print(text, soft_wrap=True)
        except Exception:  # noqa: BLE001  # as every handler of the standard library
            self.handleError(record)


@contextmanager
def handlers_through(console: Console) -> Iterator[None]:
    """Redirect all handlers that write to a terminal through this console."""
    moved: list[tuple[logging.StreamHandler[Any], Any]] = []
    try:
        for handler in _stream_handlers():
            stream = handler.stream
            if getattr(stream, "isatty", bool)():
                # One that finds its stream for each record: rich redirects sys.stderr.
                with suppress(AttributeError):
                    handler.setStream(FileProxy(console, stream))
                    moved.append((handler, stream))
        yield
    finally:
        for handler, stream in moved:
            handler.setStream(stream)


def _stream_handlers() -> Iterator[logging.StreamHandler[Any]]:
    known = [logging.getLogger(), *logging.getLogger().manager.loggerDict.values()]
    seen: set[int] = set()
    for logger in known:
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            is_new = id(handler) not in seen
            seen.add(id(handler))
            if is_new and isinstance(handler, logging.StreamHandler):
                yield handler
