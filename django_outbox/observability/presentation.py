"""
Chooses how a command shows its harvester: JSON lines, a live line or a log.

`runharvester` and `reaper.py` enter `present()` and give its observers to the
harvester; on leaving, the terminal and the loggers are as they were.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..parts import Observer
from .eventlog import JsonFormatter, JsonLines, LogLines

LEVELS = {0: logging.ERROR, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}
"""Log level for each value of `--verbosity`."""


@contextmanager
def present(
    *, log_format: str, level: int, has_bar: bool = False
) -> Iterator[list[Observer]]:
    """
    Show events and the log of `django_outbox` until the block ends.

    Args:
        log_format: `json` writes events to standard output and the log to
            standard error, both as JSON; `text` is for people.
        has_bar: another progress display has the terminal's line.
    """
    if log_format == "json":
        handler: logging.Handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter())
        with _logging_to(handler, level):
            yield [JsonLines(sys.stdout)]
    elif sys.stdout.isatty() and _has_rich() and not has_bar:
        from rich.console import Console
        from rich.logging import RichHandler

        from .terminal import StatusLine

        console = Console()
        handler = RichHandler(console=console, show_path=False)
        with _logging_to(handler, level), StatusLine(console) as line:
            yield [LogLines(), line]
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
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
