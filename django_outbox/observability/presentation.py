"""
Chooses how a command shows its worker: JSON lines, a live line or a log.

`running.py` enters `present()` and gives its observers to the harvester,
`consuming/process.py` enters `present_consumer()`; on leaving, the terminal and
the loggers are as they were.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..events import WorkerEvent
from ..parts import Observer
from .eventlog import JsonFormatter, JsonLines, LogLines
from .textlog import TextFormatter

LEVELS = {0: logging.ERROR, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}
"""Log level for each value of `--verbosity`."""


@contextmanager
def present(
    *, log_format: str, level: int, has_bar: bool = False
) -> Iterator[list[Observer]]:
    """
    Show a harvester's events and the log of `django_outbox` until the block ends.

    Args:
        log_format: `json` writes events to standard output and the log to
            standard error, both as JSON; `text` is for people.
        has_bar: another progress display has the terminal's line.
    """
    line = None if has_bar else "StatusLine"
    with _present(log_format=log_format, level=level, line=line) as observers:
        yield observers


@contextmanager
def present_consumer(
    *, log_format: str, level: int
) -> Iterator[list[Callable[[WorkerEvent], None]]]:
    """Show a consumer's events and the log, as `present()` does a harvester's."""
    with _present(log_format=log_format, level=level, line="ConsumerLine") as observers:
        yield observers


@contextmanager
def _present(*, log_format: str, level: int, line: str | None) -> Iterator[list[Any]]:
    if log_format == "json":
        handler: logging.Handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter())
        with _logging_to(handler, level):
            yield [JsonLines(sys.stdout)]
    elif line and sys.stdout.isatty() and _has_rich():
        from rich.console import Console
        from rich.logging import RichHandler

        from . import terminal

        console = Console()
        handler = RichHandler(console=console, show_path=False)
        handler.setFormatter(TextFormatter("%(message)s"))
        shown = getattr(terminal, line)(console)
        with _logging_to(handler, level), shown:
            yield [LogLines(has_line=True), shown]
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(message)s"))
        with _logging_to(handler, level):
            yield [LogLines()]


def _has_rich() -> bool:
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def _logging_to(handler: logging.Handler, level: int) -> Iterator[None]:
    """Send our log to this handler, unless the project has its own for it."""
    logger = logging.getLogger("django_outbox")
    if logger.hasHandlers():
        yield
        return
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
