"""The screen of `manage.py outbox top`: one reading, redrawn in place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..operations.by_hand import last_error
from ..wording import count, duration, local_time, printable
from .top_lines import leader_of, paused_of

_BARS: Final = "▁▂▃▄▅▆▇█"
WIDE: Final = 70
"""Columns below which there is no room for curves."""
HISTORY: Final = 60
"""Readings that the curves show."""


class Screen:
    """Shows readings on a terminal; the last one stays there at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._history: dict[str, deque[float]] = {}
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Callable[[dict[str, Any]], None]:
        self._live.start()
        return self._show

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def _show(self, reading: dict[str, Any]) -> None:
        self._live.update(self.render(reading), refresh=True)

    def render(self, reading: dict[str, Any]) -> RenderableType:
        """Draw a reading, the important first: low terminals cut the rest."""
        parts: list[RenderableType] = [self._figures(reading)]
        if reading["blocked"]["rows"]:
            parts += [Text(), _blocked(reading["blocked"])]
        if reading["topics"]:
            parts += [Text(), _topics(reading)]
        if reading["events"]:
            parts += [Text(), _events(reading["events"])]
        return Group(*parts)

    def _figures(self, reading: dict[str, Any]) -> Table:
        backlog, rates, latency = (
            reading[name] for name in ("backlog", "rates", "latency")
        )
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True, min_width=len("written"))
        table.add_column(no_wrap=True, overflow="ellipsis")
        table.add_column(no_wrap=True, overflow="crop")
        is_known = reading["leader"]["leader"] is not None
        table.add_row(
            "leader",
            Text(printable(leader_of(reading)), "bold green" if is_known else "yellow"),
            Text(_local_time_of(reading["time"])[:19], "dim"),
        )
        written, sent = (rates["written"], rates["sent"]) if rates else (None, None)
        table.add_row("written", _rate(written), self._curve("written", written))
        table.add_row("sent", _rate(sent), self._curve("sent", sent))
        waiting = backlog["records"]
        records = count(waiting, "record", is_capped=backlog["is_capped"])
        table.add_row("backlog", Text(records), self._curve("backlog", waiting))
        age = backlog["oldest_age"]
        table.add_row("oldest", Text(duration(age)), self._curve("oldest", age))
        if latency and latency["records"]:
            p50, p99 = latency["p50"], latency["p99"]
            table.add_row(
                "latency",
                Text(f"p50 {p50 * 1000:,.0f} ms, p99 {p99 * 1000:,.0f} ms"),
                self._curve("latency", p99),
            )
        if reading["paused"]:
            table.add_row("paused", Text(printable(paused_of(reading)), "bold red"))
        parked, blocked = reading["parked"], reading["blocked"]
        table.add_row("parked", _number(parked["records"], parked["is_capped"]))
        table.add_row("blocked", _number(len(blocked["rows"]), blocked["is_capped"]))
        return table

    def _curve(self, name: str, value: float | None) -> Text:
        """Draw the last values of a figure, each relative to the largest."""
        values = self._history.setdefault(name, deque(maxlen=HISTORY))
        if value is not None:
            values.append(value)
        top = max(values, default=0) or 1
        last = len(_BARS) - 1
        if self._console.width < WIDE:
            return Text()
        curve = "".join(_BARS[round(max(v, 0) / top * last)] for v in values)
        return Text(curve, "cyan")


def _local_time_of(moment: str) -> str:
    """Format the time of a reading for people."""
    return local_time(datetime.fromisoformat(moment))


def _rate(value: float | None) -> Text:
    return Text("-" if value is None else f"{value:,.0f} records/s")


def _number(value: int, is_capped: bool) -> Text:
    return Text(f"{value:,}{'+' if is_capped else ''}", "bold red" if value else "")


def _blocked(blocked: dict[str, Any]) -> Table:
    table = _table("blocked", "topic", "attempts", "error")
    for row in blocked["rows"][:5]:
        table.add_row(
            Text(str(row["id"])),
            Text(printable(row["kafka_topic"])),
            Text(str(row["attempts"])),
            Text(printable(last_error(row)), "red"),
        )
    return table


def _topics(reading: dict[str, Any]) -> Table:
    table = _table(f"of the oldest {reading['sample']:,}", "records", "oldest")
    for share in reading["topics"][:8]:
        age = share["oldest_age"]
        table.add_row(
            Text(printable(share["kafka_topic"])),
            Text(f"{share['records']:,}"),
            Text("-" if age is None else duration(age)),
        )
    return table


def _events(events: list[dict[str, Any]]) -> Table:
    table = _table("last events", "")
    for event in events[:5]:
        table.add_row(
            Text(_local_time_of(event["time"])), Text(printable(event["text"]))
        )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for number, heading in enumerate(headings):
        # Without a least width a long error takes the room of the others.
        width = max(len(heading), 8 if number < len(headings) - 1 else 0)
        table.add_column(heading, no_wrap=True, overflow="ellipsis", min_width=width)
    return table
