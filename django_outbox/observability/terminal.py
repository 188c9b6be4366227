"""
The live line of `runharvester` on a terminal, and the progress of `--drain`.

Both are observers fed by events; `rich` draws. Without a terminal neither is
used and events are logged instead.
"""

from __future__ import annotations

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

from ..events import Event, MeterRead
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


class StatusLine:
    """Observer that keeps one line: state, rate, backlog and its age."""

    def __init__(self, console: Console) -> None:
        self._state = ("starting", "yellow")
        self._meter: MeterRead | None = None
        self._live = Live(self._render(), console=console, refresh_per_second=4)

    def __enter__(self) -> StatusLine:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        if isinstance(event, MeterRead):
            self._meter = event
        elif event.kind in _STATES:
            self._state = _STATES[event.kind]
            if not event.kind.startswith("leader_"):
                self._meter = None
        self._live.update(self._render())

    def _render(self) -> Text:
        words, colour = self._state
        line = Text("● ", style=colour) + Text(f"{words:<12}", style=f"bold {colour}")
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
