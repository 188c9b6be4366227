"""The live table of several clusters; plain lines where there is no terminal."""

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

REFRESH: Final = 0.25
"""Seconds between two looks."""

LINE_INTERVAL: Final = 5.0
"""Seconds between two lines where the table cannot be drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """What is known of one cluster."""

    number: int
    harvesters: int
    """Of its processes, how many run."""
    written: int
    """Records committed there."""
    delivered: int
    """Messages that its leader has sent, of whatever cluster."""
    taken_over: int
    """Of these, messages of other clusters."""
    waiting: int
    """Records written there that nobody has delivered yet."""


class Board:
    """
    Shows the clusters for as long as it is watched.

    Args:
        console: where to.
        look: returns what is known now.
    """

    def __init__(
        self, console: Console, look: Callable[[], Sequence[ClusterState]]
    ) -> None:
        self._console = console
        self._look = look
        self._began = time.monotonic()
        self._line_at = 0.0

    def watch(self, seconds: float) -> None:
        """Show for a while."""
        end = time.monotonic() + seconds
        with self._live() as refresh:
            while time.monotonic() < end:
                time.sleep(REFRESH)
                refresh()

    def wait(
        self,
        is_done: Callable[[], object],
        *,
        what: str,
        progress: Callable[[], object],
    ) -> None:
        """Show until something has happened; see `wait_while_moving`."""
        with self._live() as refresh:
            wait_while_moving(
                is_done, what=what, progress=progress, shows=refresh, interval=REFRESH
            )

    def show(self) -> None:
        """Print what is known now, to stay."""
        self._console.print(self._table())

    @contextmanager
    def _live(self) -> Iterator[Callable[[], None]]:
        """Yield what shows the present state."""
        if not self._console.is_terminal:
            yield self._perhaps_print
            return
        with Live(self._table(), console=self._console, transient=True) as live:
            yield lambda: live.update(self._table())

    def _table(self) -> Table:
        table = Table(title=f"{time.monotonic() - self._began:.0f} s")
        table.add_column("cluster")
        for column in ("harvesters", "written", "delivered", "taken over", "waiting"):
            table.add_column(column, justify="right", min_width=10)
        for state in self._look():
            table.add_row(
                str(state.number),
                str(state.harvesters) if state.harvesters else "[bold red]none",
                f"{state.written:,}",
                f"{state.delivered:,}",
                f"[bold yellow]{state.taken_over:,}" if state.taken_over else "0",
                f"{state.waiting:,}",
            )
        return table

    def _perhaps_print(self) -> None:
        if (now := time.monotonic()) < self._line_at:
            return
        self._line_at = now + LINE_INTERVAL
        clusters = "; ".join(
            f"{state.number}: {state.written:,} written, {state.delivered:,} delivered,"
            f" {state.taken_over:,} taken over"
            for state in self._look()
        )
        self._console.print(f"{now - self._began:3.0f} s  {clusters}", soft_wrap=True)
