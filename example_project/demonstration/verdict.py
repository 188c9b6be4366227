"""The verdict of an act: a table of promises, and whether each was kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

SLOW: Final = "slow"
"""
Shown, but not counted as a broken promise: processes may be slow on a busy
machine.
"""

Row = tuple[str, str, bool | str | None]
"""
A promise, the observed value, and whether the promise was kept: a boolean,
`SLOW`, or None if nothing is promised.
"""

_MARKS: Final = {
    None: "",
    True: "[green]yes[/green]",
    False: "[bold red]no[/bold red]",
    SLOW: "[yellow]slow[/yellow]",
}


def in_time(seen: float, limit: float) -> bool | str:
    """Mark a value that may be higher on a busy machine."""
    return True if seen <= limit else SLOW


def print_verdict(console: Console, title: str, rows: Sequence[Row]) -> int:
    """Print the table; return the exit code: 1 if a promise was broken."""
    table = Table(title=title, min_width=48)
    table.add_column("promise")
    table.add_column("observed", justify="right")
    table.add_column("kept", justify="center")
    for promise, seen, is_kept in rows:
        table.add_row(promise, seen, _MARKS[is_kept])
    console.print(table)
    if any(is_kept == SLOW for *_, is_kept in rows):
        console.print(
            "slow: takes longer than with a free core; this does not break a promise."
        )
    return 1 if any(is_kept is False for *_, is_kept in rows) else 0
