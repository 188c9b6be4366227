"""The end of a demonstration: a table of promises, and whether each was kept."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

Row = tuple[str, str, bool | None]
"""A promise, what was seen of it, and whether it was kept, if it can be broken."""

_MARKS = {None: "", True: "[green]yes[/green]", False: "[bold red]no[/bold red]"}


def print_verdict(console: Console, title: str, rows: Sequence[Row]) -> int:
    """Print the table; return the exit code: 1 when a promise was broken."""
    table = Table(title=title, min_width=48)
    table.add_column("promise")
    table.add_column("seen", justify="right")
    table.add_column("kept", justify="center")
    for promise, seen, is_kept in rows:
        table.add_row(promise, seen, _MARKS[is_kept])
    console.print(table)
    return 0 if all(is_kept is not False for *_, is_kept in rows) else 1
