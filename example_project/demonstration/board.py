"""The live table of several clusters; plain lines without a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from django_outbox.devstack.waiting import wait_while_moving

REFRESH_INTERVAL: Final = 0.25
"""Seconds between two updates of the table."""

LINE_INTERVAL: Final = 5.0
"""Seconds between two lines without a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """Counts of one cluster."""

    number: int
    harvesters: int
    """Harvester processes that are running."""
    written: int
    """Records committed in this cluster."""
    delivered: int
    """Messages sent by its leader, of all clusters."""
    taken_over: int
    """Messages of other clusters sent by its leader."""
    waiting: int
    """Records written in this cluster that no leader has delivered yet."""


class Board:
    """
    Shows the state of the clusters.

    Args:
        console: Output.
        states: Returns the current states.
    """

    def __init__(
        self, console: Console, states: Callable[[], Sequence[ClusterState]]
    ) -> None:
        self._console = console
        self._states = states
        self._began = time.monotonic()
        self._line_at = 0.0

    def watch(self, seconds: float) -> None:
        """Show the states for this many seconds."""
        end = time.monotonic() + seconds
        with self._live() as refresh:
            while time.monotonic() < end:
                time.sleep(REFRESH_INTERVAL)
                refresh()

    def wait(
        self,
        is_done: Callable[[], object],
        *,
        what: str,
        progress: Callable[[], object],
    ) -> None:
        """Show the states until a condition is true; fails without progress."""
        with self._live() as refresh:
            wait_while_moving(
                is_done,
                what=what,
                progress=progress,
                shows=refresh,
                interval=REFRESH_INTERVAL,
            )

    def show(self) -> None:
        """Print the current states permanently."""
        self._console.print(self._table())

    @contextmanager
    def _live(self) -> Iterator[Callable[[], None]]:
        """Yield a function that shows the current states."""
        if not self._console.is_terminal:
            yield self._print_line_if_due
            return
        with Live(self._table(), console=self._console, transient=True) as live:
            yield lambda: live.update(self._table())

    def _table(self) -> Table:
        table = Table(title=f"{time.monotonic() - self._began:.0f} s")
        table.add_column("cluster")
        for column in ("harvesters", "written", "delivered", "taken over", "waiting"):
            table.add_column(column, justify="right", min_width=10)
        for state in self._states():
            table.add_row(
                str(state.number),
                str(state.harvesters) if state.harvesters else "[bold red]none",
                f"{state.written:,}",
                f"{state.delivered:,}",
                f"[bold yellow]{state.taken_over:,}" if state.taken_over else "0",
                f"{state.waiting:,}",
            )
        return table

    def _print_line_if_due(self) -> None:
        if (now := time.monotonic()) < self._line_at:
            return
        self._line_at = now + LINE_INTERVAL
        clusters = "; ".join(
            f"{state.number}: {state.written:,} written, {state.delivered:,} delivered,"
            f" {state.taken_over:,} taken over"
            for state in self._states()
        )
        self._console.print(f"{now - self._began:3.0f} s  {clusters}", soft_wrap=True)
