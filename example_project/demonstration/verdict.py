"""The end of an act: a table of promises, and whether each was kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

SLOW: Final = "slow"
"""
What is shown and not judged: no promise is broken by a machine on which
processes do not get to run in time.
"""

Row = tuple[str, str, bool | str | None]
"""
A promise, what was seen of it, and whether it was kept: a boolean, `SLOW`, or
None where nothing is promised.
"""

_MARKS: Final = {
    None: "",
    True: "[green]yes[/green]",
    False: "[bold red]no[/bold red]",
    SLOW: "[yellow]slow[/yellow]",
}


def in_time(seen: float, limit: float) -> bool | str:
    """How something is marked of which a busy machine makes more."""
    return True if seen <= limit else SLOW


def print_verdict(console: Console, title: str, rows: Sequence[Row]) -> int:
    """Print the table; return the exit code: 1 when a promise was broken."""
    table = Table(title=title, min_width=48)
    table.add_column("promise")
    table.add_column("seen", justify="right")
    table.add_column("kept", justify="center")
    for promise, seen, is_kept in rows:
        table.add_row(promise, seen, _MARKS[is_kept])
    console.print(table)
    if any(is_kept == SLOW for *_, is_kept in rows):
        console.print(
            "slow: longer than on a machine with a free core; this breaks no promise."
        )
    return 1 if any(is_kept is False for *_, is_kept in rows) else 0
