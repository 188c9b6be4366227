"""
The live lines of workers on a terminal, and the progress of `--drain`.

All are observers fed by events; `rich` draws. Without a terminal none is
used and events are logged instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from ..events import ConsumerRead, Event, MeterRead, WorkerEvent
from ..records import Backlog

_STATES = {
    "ready": ("standing by", "yellow"),
    "leader_acquired": ("leading", "green"),
    "leader_refreshed": ("leading", "green"),
    "leader_revoked": ("standing by", "yellow"),
    "leader_fenced": ("fenced", "red"),
    "stopped": ("stopped", "dim"),
}
"""What each event makes of the harvester: words and colour."""

_CONSUMER_STATES = {
    "ready": ("consuming", "green"),
    "partitions_changed": ("consuming", "green"),
    "stopped": ("stopped", "dim"),
}
"""What each event makes of a consumer."""


class _Line(ABC):
    """One line at the bottom of the terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(self._render(), console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def _show(self) -> None:
        self._live.update(self._render())

    @abstractmethod
    def _render(self) -> Text:
        """What the line says now."""


class StatusLine(_Line):
    """Observer that keeps one line: state, rate, backlog and its age."""

    def __init__(self, console: Console) -> None:
        self._state = ("starting", "yellow")
        self._meter: MeterRead | None = None
        super().__init__(console)

    def __call__(self, event: Event) -> None:
        if isinstance(event, MeterRead):
            self._meter = event
        elif event.kind in _STATES:
            self._state = _STATES[event.kind]
            if event.kind not in ("leader_acquired", "leader_refreshed"):
                # Only who leads knows how it stands.
                self._meter = None
        self._show()

    def _render(self) -> Text:
        line = _headline(*self._state)
        if self._meter is None:
            return line
        meter = self._meter
        backlog = f"{meter.backlog:,}{'+' if meter.is_backlog_capped else ''}"
        line.append(
            f"{meter.rate:>9,.0f} records/s   backlog {backlog:>8}   "
            f"oldest {meter.oldest_age:6.1f} s   in flight {meter.in_flight:,}"
        )
        if meter.blocked_keys:
            line.append(f"   blocked keys {meter.blocked_keys:,}", style="bold red")
        return line


class ConsumerLine(_Line):
    """Observer that keeps one line: rate, lag, time left, repeats, failures."""

    def __init__(self, console: Console) -> None:
        self._state = ("joining", "yellow")
        self._read: ConsumerRead | None = None
        super().__init__(console)

    def __call__(self, event: WorkerEvent) -> None:
        if isinstance(event, ConsumerRead):
            self._read = event
        elif event.kind in _CONSUMER_STATES:
            self._state = _CONSUMER_STATES[event.kind]
        self._show()

    def _render(self) -> Text:
        line = _headline(*self._state)
        if self._read is None:
            return line
        read = self._read
        left = f"{read.lag / read.rate:,.0f} s" if read.rate and read.lag else "-"
        line.append(
            f"{read.rate:>9,.0f} messages/s   lag {read.lag:>8,}   left {left:>8}   "
            f"processed {read.processed:,}   repeats {read.repeats:,}"
        )
        if trouble := read.failed:
            line.append(
                f"   failed {trouble:,}   dead letters {read.dead_letters:,}",
                style="bold red",
            )
        return line


def _headline(words: str, colour: str) -> Text:
    return Text("● ", style=colour) + Text(f"{words:<12}", style=f"bold {colour}")


class DrainBar:
    """The progress of `--drain`: a bar with the time left."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("draining"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._task = self._progress.add_task("drain", total=None)
        self._most = 0

    def __enter__(self) -> DrainBar:
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()

    def update(self, backlog: Backlog) -> None:
        """Show how much is left; rows that arrive meanwhile move the end."""
        self._most = max(self._most, backlog.records)
        self._progress.update(
            self._task, total=self._most, completed=self._most - backlog.records
        )
