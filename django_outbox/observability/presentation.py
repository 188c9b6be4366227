"""
Chooses how a command shows its worker: JSON lines, a live line or a log.

On exit, the terminal and the loggers are restored.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..events import Observer
from ..exceptions import install_command
from ..message.record import Backlog
from ..wording import count
from .eventlog import JsonFormatter, JsonLines, LogLines
from .textlog import TextFormatter

if TYPE_CHECKING:
    from rich.console import Console

logger = logging.getLogger(__name__)

Line: TypeAlias = Literal["StatusLine", "DrainBar", "ConsumerLine"]
"""A class of `terminal`, which is imported where there is a terminal."""

LEVELS = {0: logging.ERROR, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}
"""Log level for each value of `--verbosity`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """How a worker is shown."""

    observers: list[Any]
    is_live: bool = False
    """Whether a live line is shown, which needs frequent readings."""
    show_backlog: Callable[[Backlog], None]
    """Shows what `--drain` still has to send."""
    conclude: Callable[[str], None]
    """Shows the summary of a run."""


@contextmanager
def present(*, log_format: str, level: int, line: Line) -> Iterator[Display]:
    """
    Show a worker's events and the log of `django_outbox` until the block ends.

    Args:
        log_format: `json` writes events to standard output and the log to
            standard error, both as JSON; `text` is for people.
        level: of the log, as in `logging`; a project's own LOGGING wins.
        line: what a terminal shows below the log.
    """
    if log_format == "json":
        with _logging_to(logging.StreamHandler(), JsonFormatter(), level):
            yield Display(
                observers=[JsonLines(sys.stdout)],
                show_backlog=_log_backlog,
                conclude=logger.info,
            )
    elif console := live_console():
        with _on_terminal(console, line, level) as display:
            yield display
    else:
        with _logging_to(logging.StreamHandler(), TextFormatter(), level):
            if sys.stdout.isatty() and find_spec("rich") is None:
                logger.info("For a live line: %s", install_command("terminal"))
            yield Display(
                observers=[LogLines()],
                show_backlog=_log_backlog,
                conclude=lambda text: print(text, flush=True),  # noqa: T201  # it is output
            )


@contextmanager
def _on_terminal(console: Console, line: Line, level: int) -> Iterator[Display]:
    from . import terminal
    from .console import ConsoleHandler, handlers_through

    shown = getattr(terminal, line)(console)
    # When standard error is redirected to a file, so is the log.
    shares = sys.stderr.isatty()
    handler = ConsoleHandler(console) if shares else logging.StreamHandler()
    with (
        handlers_through(console),
        _logging_to(handler, TextFormatter(), level),
        shown,
    ):
        observers: list[Observer] = [LogLines(has_line=True), shown]
        yield Display(
            observers=observers,
            is_live=True,
            show_backlog=getattr(shown, "show_backlog", _log_backlog),
            conclude=lambda text: console.print(text, highlight=False, soft_wrap=True),
        )


def live_console() -> Console | None:
    """Return a console that can redraw its last line, if there is one."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console()
    # It draws with characters that other encodings than UTF-8 lack.
    is_able = not (console.is_dumb_terminal or console.options.ascii_only)
    return console if is_able else None


def _log_backlog(backlog: Backlog) -> None:
    left = count(backlog.records, "record", is_capped=backlog.is_capped)
    logger.debug("%s left", left)


@contextmanager
def _logging_to(
    handler: logging.Handler, formatter: logging.Formatter, level: int
) -> Iterator[None]:
    """Log to this handler, unless the project has configured its own."""
    ours = logging.getLogger("django_outbox")
    if ours.hasHandlers():
        yield
        return
    handler.setFormatter(formatter)
    before = ours.level
    ours.addHandler(handler)
    ours.setLevel(level)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.setLevel(before)
