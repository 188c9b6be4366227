"""
The live lines of workers on a terminal, and the progress of `--drain`.

All are observers; `rich` draws them. Without a terminal, events are logged
instead. A line never takes more than one row, says when its numbers are old, and
disappears when its worker has ended.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..events import ConsumerRead, Event, MeterRead, WorkerEvent
from ..message.record import Backlog
from ..wording import duration

_STATES = {
    "ready": ("standing by", "yellow"),
    "leader_acquired": ("leading", "green"),
    "leader_refreshed": ("leading", "green"),
    "leader_revoked": ("standing by", "yellow"),
    "leader_fenced": ("fenced", "red"),
    "stopped": ("stopped", "dim"),
}
"""The state of the harvester after each event: text and colour."""

_CONSUMER_STATES = {
    "ready": ("consuming", "green"),
    "partitions_changed": ("consuming", "green"),
    "membership_lost": ("out of its group", "red"),
    "stopped": ("stopped", "dim"),
}
"""The state of a consumer after each event: text and colour."""


MAX_READING_AGE: Final = 3.0
"""Seconds after which a reading is out of date."""

_RESERVED_COLUMNS: Final = 5
"""Columns left free: the terminal echoes a typed Ctrl-C as ^C at the end of the line,
and a line that wraps to the next row could not be cleared."""

_WIDE_TERMINAL: Final = 80
"""Columns below which the bar is half as wide."""


class _Line(ABC):
    """One line at the bottom of the terminal."""

    _state: tuple[str, str]
    """Text and colour."""

    def __init__(self, console: Console) -> None:
        self._read_at = 0.0
        self._console = console
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=4,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def _show(self) -> None:
        self._live.refresh()

    def _has_read(self) -> None:
        """Remember when the numbers were read."""
        self._read_at = time.monotonic()

    def _render(self) -> Text:
        """Return the current text of the line."""
        line = Text("● ", style=self._state[1])
        line.append(f"{self._state[0]:<12}", style=f"bold {self._state[1]}")
        if self._has_numbers:
            age = time.monotonic() - self._read_at
            if age > MAX_READING_AGE:
                line.append(f"no reading for {duration(age)}", style="yellow")
            else:
                self._append_numbers(line)
        line.truncate(
            max(1, self._console.width - _RESERVED_COLUMNS), overflow="ellipsis"
        )
        return line

    @property
    @abstractmethod
    def _has_numbers(self) -> bool:
        """Whether there was a reading in the current state."""

    @abstractmethod
    def _append_numbers(self, line: Text) -> None:
        """Append the last reading, the important first: narrow terminals cut it."""


class StatusLine(_Line):
    """Observer that keeps one line: state, rate, backlog and its age."""

    def __init__(self, console: Console) -> None:
        self._state = ("starting", "yellow")
        self._meters: dict[int, MeterRead] = {}
        """The last reading of each shard that is led."""
        self._led: set[int] = set()
        super().__init__(console)

    def __call__(self, event: Event) -> None:
        if isinstance(event, MeterRead):
            # Readings come from another thread than events of the election, so that
            # one may arrive after its term has ended.
            if event.shard in self._led:
                self._meters[event.shard] = event
                self._has_read()
        elif event.kind in _STATES:
            if event.kind in ("leader_acquired", "leader_refreshed"):
                self._led.add(event.shard)
            else:
                # Only the leader has readings.
                self._led.discard(event.shard)
                self._meters.pop(event.shard, None)
            if event.shard in self._led or not self._led:
                self._state = _STATES[event.kind]
        self._show()

    @property
    def _has_numbers(self) -> bool:
        return bool(self._meters)

    def _append_numbers(self, line: Text) -> None:
        meters = [*self._meters.values()]
        if not meters:
            # Just now the leadership was lost, on another thread.
            return
        meter = replace(
            meters[-1],
            rate=sum(one.rate for one in meters),
            blocked_keys=sum(one.blocked_keys for one in meters),
            in_flight=sum(one.in_flight for one in meters),
        )
        backlog = f"{meter.backlog:,}{'+' if meter.is_backlog_capped else ''}"
        line.append(
            f"{meter.rate:>7,.0f} records/s   backlog {backlog:>7}   "
            f"oldest {duration(meter.oldest_age):>7}"
        )
        if meter.blocked_keys:
            line.append(f"   blocked keys {meter.blocked_keys:,}", style="bold red")
        line.append(f"   in flight {meter.in_flight:,}")


class ConsumerLine(_Line):
    """Observer that keeps one line: rate, lag, time left, repeats, failures."""

    def __init__(self, console: Console) -> None:
        self._state = ("joining", "yellow")
        self._read: ConsumerRead | None = None
        super().__init__(console)

    def __call__(self, event: WorkerEvent) -> None:
        if isinstance(event, ConsumerRead):
            self._read = event
            self._has_read()
        elif event.kind in _CONSUMER_STATES:
            self._state = _CONSUMER_STATES[event.kind]
        self._show()

    @property
    def _has_numbers(self) -> bool:
        return self._read is not None

    def _append_numbers(self, line: Text) -> None:
        read = self._read
        assert read is not None, "there was a reading"
        left = duration(read.lag / read.rate) if read.rate and read.lag else "-"
        line.append(
            f"{read.rate:>7,.0f} messages/s   lag {read.lag:>7,}   left {left:>7}"
        )
        if trouble := read.failed:
            line.append(
                f"   failed {trouble:,}   dead letters {read.dead_letters:,}",
                style="bold red",
            )
        line.append(f"   processed {read.processed:,}   repeats {read.repeats:,}")


class DrainBar:
    """Observer that shows the progress of `--drain`: a bar with the time left."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("[{task.fields[colour]}]●[/] {task.description}"),
            BarColumn(bar_width=20 if console.width >= _WIDE_TERMINAL else 10),
            TextColumn("{task.fields[done]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task(
            "starting", total=None, colour="yellow", done=""
        )
        self._most = 0

    def __enter__(self) -> DrainBar:
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        if event.kind in _STATES:
            words, colour = _STATES[event.kind]
            self._progress.update(self._task, description=words, colour=colour)

    def show_backlog(self, backlog: Backlog) -> None:
        """Show how much is left; rows that arrive meanwhile move the end."""
        self._most = max(self._most, backlog.records)
        more = "+" if backlog.is_capped else ""
        self._progress.update(
            self._task,
            total=self._most,
            completed=self._most - backlog.records,
            done=f"{self._most - backlog.records:,} of {self._most:,}{more}",
        )
