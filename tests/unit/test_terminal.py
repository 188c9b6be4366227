"""The live lines, and the log above them."""

from __future__ import annotations

import io
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from django_outbox.events import (
    ConsumerRead,
    ConsumerReady,
    LeaderAcquired,
    LeaderRevoked,
    MeterRead,
    Ready,
)
from django_outbox.message.record import Backlog
from django_outbox.observability import terminal
from django_outbox.observability.console import ConsoleHandler, handlers_through
from django_outbox.observability.presentation import live_console
from django_outbox.observability.terminal import ConsumerLine, DrainBar, StatusLine
from django_outbox.observability.textlog import TextFormatter

METER = MeterRead(
    name="n",
    leader_id="a",
    rate=12_345.6,
    purged=3,
    failed=0,
    in_flight=2,
    blocked_keys=0,
    backlog=100_000,
    is_backlog_capped=True,
    oldest_age=0.25,
    receiver_errors=0,
)
READ = ConsumerRead(
    name="n",
    group="billing",
    rate=10.0,
    processed=7,
    repeats=1,
    failed=0,
    dead_letters=0,
    lag=30,
)

Clock = Callable[[float], None]


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    return pass_time


def console(width: int = 200) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True)


def test_the_line_shows_state_and_numbers(pass_time: Clock) -> None:
    line = StatusLine(console())
    assert line._render().plain == "● starting    "
    line(Ready(name="n"))
    assert "standing by" in line._render().plain
    line(LeaderAcquired(name="n", leader_id="a"))
    line(METER)
    shown = line._render().plain
    assert re.sub(" +", " ", shown) == (
        "● leading 12,346 records/s backlog 100,000+ oldest 0.2 s in flight 2"
    )
    line(replace(METER, blocked_keys=3))
    assert "blocked keys 3" in line._render().plain


def test_numbers_that_are_old_are_not_shown(pass_time: Clock) -> None:
    """As while the database is away."""
    line = StatusLine(console())
    line(LeaderAcquired(name="n", leader_id="a"))
    line(METER)
    pass_time(terminal.MAX_READING_AGE + 4)
    assert line._render().plain == "● leading     no reading for 7.0 s"
    line(METER)
    assert "12,346 records/s" in line._render().plain
    line(LeaderRevoked(name="n", leader_id="a"))
    assert line._render().plain == "● standing by "


def test_a_reading_after_the_end_of_its_term_is_not_shown(pass_time: Clock) -> None:
    """The backlog was counted when the term ended."""
    line = StatusLine(console())
    line(LeaderAcquired(name="n", leader_id="a"))
    line(LeaderRevoked(name="n", leader_id="a"))
    line(METER)
    assert line._render().plain == "● standing by "
    pass_time(720)
    assert line._render().plain == "● standing by "
    line(LeaderAcquired(name="n", leader_id="b"))
    assert line._render().plain == "● leading     "
    line(replace(METER, leader_id="b"))
    assert "12,346 records/s" in line._render().plain


def test_a_term_may_end_while_its_numbers_are_drawn() -> None:
    """An error there would end the thread that draws."""
    line = StatusLine(console())
    line(LeaderAcquired(name="n", leader_id="a"))
    line(LeaderRevoked(name="n", leader_id="a"))
    drawn = Text()
    line._append_numbers(drawn)
    assert drawn.plain == ""


@pytest.mark.parametrize("width", [10, 40, 60, 80])
def test_the_line_has_room_for_an_echo(width: int, pass_time: Clock) -> None:
    """^C behind a full row would move the line to the next one, and leave it there."""
    line = StatusLine(console(width))
    line(LeaderAcquired(name="n", leader_id="a"))
    line(replace(METER, blocked_keys=3))
    assert line._render().cell_len == width - 5


def test_the_live_line_of_a_consumer_shows_what_is_left(pass_time: Clock) -> None:
    line = ConsumerLine(console())
    assert "joining" in line._render().plain
    line(ConsumerReady(name="n", group="billing"))
    line(READ)
    shown = re.sub(" +", " ", line._render().plain)
    assert shown == (
        "● consuming 10 messages/s lag 30 left 3.0 s processed 7 repeats 1"
    )
    line(replace(READ, failed=2, dead_letters=1))
    assert "failed 2   dead letters 1" in line._render().plain


@pytest.mark.parametrize("width", [60, 120])
def test_the_bar_fits_into_one_row(width: int) -> None:
    drawn = console(width)
    bar = DrainBar(drawn)
    bar(Ready(name="n"))
    bar.show_backlog(Backlog(records=100_000, is_capped=True, oldest_age=1.0))
    bar.show_backlog(Backlog(records=99_999, is_capped=False, oldest_age=1.0))
    with drawn.capture() as captured:
        drawn.print(bar._progress)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", captured.get())
    (row,) = shown.splitlines()
    assert "● standing by" in row
    assert "1 of 100,000" in row
    assert len(row.rstrip()) <= width - 5


@pytest.mark.parametrize(
    ("encoding", "is_drawn"), [("utf-8", True), ("iso8859-1", False), ("koi8-r", False)]
)
def test_lines_are_drawn_where_the_terminal_has_their_characters(
    monkeypatch: pytest.MonkeyPatch, encoding: str, *, is_drawn: bool
) -> None:
    class Tty(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Tty(io.BytesIO(), encoding=encoding))
    assert (live_console() is not None) == is_drawn


@pytest.fixture
def root_handler() -> Iterator[logging.StreamHandler[io.StringIO]]:
    """What a project's LOGGING would have made."""

    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    handler = logging.StreamHandler[io.StringIO](Tty())
    logging.getLogger("a.project").addHandler(handler)
    yield handler
    logging.getLogger("a.project").removeHandler(handler)


def test_a_projects_own_handler_writes_through_the_console(
    root_handler: logging.StreamHandler[io.StringIO],
) -> None:
    drawn, stream = console(), root_handler.stream
    log = logging.getLogger("a.project")
    with handlers_through(drawn):
        log.warning("above the line")
    log.warning("later")
    assert isinstance(drawn.file, io.StringIO)
    assert drawn.file.getvalue() == "above the line\n"
    assert root_handler.stream is stream
    assert stream.getvalue() == "later\n"


def test_a_handler_that_finds_its_stream_by_itself_is_left_alone() -> None:
    """As that of coloredlogs; rich redirects sys.stderr."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    class Finding(logging.StreamHandler[Any]):
        @property
        def stream(self) -> Any:
            return terminal

        @stream.setter
        def stream(self, _: Any) -> None:
            raise AttributeError("can't set attribute")

        def __init__(self) -> None:
            logging.Handler.__init__(self)

    terminal, handler = Terminal(), Finding()
    log = logging.getLogger("a.project")
    log.addHandler(handler)
    try:
        with handlers_through(console()):
            log.warning("as it does")
    finally:
        log.removeHandler(handler)
    assert terminal.getvalue() == "as it does\n"


def test_a_handler_that_writes_to_a_file_is_left_alone(
    root_handler: logging.StreamHandler[io.StringIO],
) -> None:
    drawn, stream = console(), io.StringIO()
    root_handler.setStream(stream)
    with handlers_through(drawn):
        logging.getLogger("a.project").warning("into the file")
    assert stream.getvalue() == "into the file\n"


def test_markup_in_a_record_is_text() -> None:
    drawn = Console(file=io.StringIO(), width=40)
    handler = ConsoleHandler(drawn)
    handler.setFormatter(TextFormatter())
    text = "[bold]x[/bold] :smile: [/nothing] " + "y" * 80
    handler.handle(logging.makeLogRecord({"msg": text, "levelname": "INFO"}))
    assert isinstance(drawn.file, io.StringIO)
    (row,) = drawn.file.getvalue().splitlines()
    assert row.endswith(f"INFO {text}")


def test_an_error_in_a_handler_does_not_reach_the_caller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    handler = ConsoleHandler(console())
    handler.handle(logging.makeLogRecord({"msg": "%d", "args": ("x",)}))
    assert "Logging error" in capsys.readouterr().err
    assert sys.exc_info() == (None, None, None)
