"""
Writes a run down: figures as JSON, plots, and a section of docs/performance.md.

The section lies between two marks in the page and is replaced as a whole, so
that what people have written around it stays.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from ..processes import ROOT
from . import targets
from .plots import draw
from .readings import Book, Summary, shown

PAGE: Final = ROOT / "docs" / "performance.md"
FOLDER: Final = ROOT / "docs" / "performance"
FIGURES: Final = "figures.json"

BEGIN: Final = "<!-- generated: begin -->"
END: Final = "<!-- generated: end -->"

BASES: Final = ("Debezium tuned", "ORM insert", "COPY", "at-least-once")
"""Sides that the others of the same figure are divided by: the first that is there."""


def write(
    book: Book, command: str, *, page: Path = PAGE, folder: Path = FOLDER
) -> None:
    """Write the figures and the plots, and put the tables into the page."""
    folder.mkdir(exist_ok=True)
    facts = about(command)
    summaries = list(book.summaries())
    record = {
        **facts,
        "remarks": book.remarks,
        "figures": [
            {**asdict(summary), "median": summary.median} for summary in summaries
        ],
    }
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (folder / FIGURES).write_text(f"{text}\n", "utf-8")
    plots = draw(summaries, folder)
    lines = section(summaries, facts, book.remarks, plots)
    before, rest = page.read_text("utf-8").split(BEGIN)
    _, after = rest.split(END)
    body = "\n".join(lines)
    page.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", "utf-8")


def about(command: str) -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "command": command,
        "generated": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def section(
    summaries: Sequence[Summary],
    facts: dict[str, Any],
    remarks: Sequence[str],
    plots: Sequence[str],
) -> Iterator[str]:
    """Yield the lines of the generated section."""
    yield ""
    machine = f"{facts['cores']} cores, Python {facts['python']}"
    yield (
        f"generated: {facts['generated']} by `{facts['command']}`; {machine};"
        f" [all readings](performance/{FIGURES})."
    )
    if remarks:
        yield from ("", *(f"- {remark}" for remark in remarks))
    yield from ("", "### Targets", "", *targets.table(summaries))
    for benchmark, group in groupby(summaries, key=lambda summary: summary.benchmark):
        yield from ("", f"### {benchmark.capitalize()}", "")
        yield from table(list(group))
        for name in plots:
            if name.startswith(f"{benchmark}-"):
                yield from ("", f"![{benchmark}](performance/{name})")
    yield ""


def table(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield the rows of one benchmark: median, spread, ratio, load."""
    bases = {
        (s.case, s.figure): (s.side, s.median)
        for base in reversed(BASES)
        for s in summaries
        if s.side == base
    }
    yield "| case | figure | side | median | from – to | ÷ | load |"
    yield "|---|---|---|---|---|---|---|"

    def key(summary: Summary) -> tuple[str, str]:
        return summary.case, summary.figure

    order = list(dict.fromkeys(map(key, summaries)))
    for summary in sorted(summaries, key=lambda s: order.index(key(s))):
        values, loads = summary.values, summary.loads
        cells = (
            summary.case,
            summary.figure,
            summary.side,
            f"{shown(summary.median)} {summary.unit}",
            f"{shown(min(values))} – {shown(max(values))}",
            _ratio(summary, bases.get(key(summary))),
            f"{min(loads):.1f} – {max(loads):.1f}",
        )
        yield f"| {' | '.join(cells)} |"


def _ratio(summary: Summary, base: tuple[str, float] | None) -> str:
    """Divide by the peer, or by the floor, of the same figure."""
    if base is None or base[0] == summary.side or not base[1]:
        return ""
    ratio = summary.median / base[1]
    text = f"{ratio:.2f}" if ratio >= 0.1 else shown(ratio)
    return f"{text} × {base[0]}"


def printed(summaries: Sequence[Summary]) -> str:
    """Return the tables of all benchmarks and the targets, for the terminal."""
    parts = [
        "\n".join([f"\n{benchmark}", *table(list(group))])
        for benchmark, group in groupby(summaries, key=lambda s: s.benchmark)
    ]
    return "\n".join([*parts, "\ntargets", *targets.table(summaries)])
