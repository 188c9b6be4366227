"""
The log on a terminal whose last line is in use.

Whatever is written there while a line is drawn has to pass through the console
that draws it, or the two end up in each other. So the log of django_outbox goes
there, and so do handlers of the project's own LOGGING that write to the terminal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.text import Text

_STYLES: Final = {logging.WARNING: "yellow", logging.ERROR: "red"}
"""By level; others have none."""


class ConsoleHandler(logging.Handler):
    """Writes log records above the live line of a console."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = Text(self.format(record), style=_STYLES.get(record.levelno, ""))
            # Not folded: the terminal does it, and a copied line stays one.
            self._console.print(text, soft_wrap=True)
        except Exception:  # noqa: BLE001  # as every handler of the standard library
            self.handleError(record)


@contextmanager
def handlers_through(console: Console) -> Iterator[None]:
    """Let all handlers of the process that write to a terminal write through this."""
    moved = [
        (handler, handler.stream)
        for handler in _stream_handlers()
        if getattr(handler.stream, "isatty", bool)()
    ]
    for handler, stream in moved:
        handler.setStream(FileProxy(console, stream))
    try:
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
