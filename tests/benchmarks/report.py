"""
Writes a run down: figures as JSON, plots, and a section of docs/performance.md.

The section lies between two marks in the page and is replaced as a whole, so
that what people have written around it stays.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from ..processes import ROOT
from . import targets
from .consumers import BY_HAND
from .plots import draw
from .readings import Book, Summary, shown
from .targets import OURS, PEER

PAGE: Final = ROOT / "docs" / "performance.md"
FOLDER: Final = ROOT / "docs" / "performance"
FIGURES: Final = "figures.json"

BEGIN: Final = "<!-- generated: begin -->"
END: Final = "<!-- generated: end -->"

BASES: Final = (PEER, "ORM insert", "COPY", BY_HAND, OURS)
"""Sides that the others of the same row are divided by: the first that is there."""


LEGEND: Final = """\
In the tables below the first figure of a row is an absolute one, the median of all
rounds; the others are ratios to it, with their own medians in parentheses."""


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
        f"{_load(summaries)} [all readings](performance/{FIGURES})."
    )
    if remarks:
        yield from ("", *(f"- {remark}" for remark in remarks))
    yield from ("", "### Targets", "", *targets.table(summaries), "", LEGEND)
    for benchmark, group in groupby(summaries, key=lambda summary: summary.benchmark):
        yield from ("", f"### {benchmark.capitalize()}", "")
        yield from table(list(group))
        for name in plots:
            if name.startswith(f"{benchmark}-"):
                yield from ("", f"![{benchmark}](performance/{name})")
    yield ""


def _load(summaries: Sequence[Summary]) -> str:
    loads = [load for summary in summaries for load in summary.loads]
    return f" load {min(loads):.1f} – {max(loads):.1f};" if loads else ""


def table(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield one benchmark's medians: a row for each figure, a column for each side."""
    found = list(dict.fromkeys(s.side for s in summaries))
    sides = sorted(found, key=lambda side: (_rank(side), found.index(side)))
    yield f"| case | figure | {' | '.join(sides)} |"
    yield "|---|---|" + "---|" * len(sides)
    rows: dict[tuple[str, str, str], dict[str, float]] = {}
    for summary in summaries:
        row = rows.setdefault((summary.case, summary.figure, summary.unit), {})
        row[summary.side] = summary.median
    for (case, figure, unit), medians in rows.items():
        base = next(side for side in sides if side in medians)
        cells = [_cell(medians, side, base) for side in sides]
        yield f"| {case} | {figure}, {unit} | {' | '.join(cells)} |"


def _rank(side: str) -> int:
    return BASES.index(side) if side in BASES else len(BASES)


def _cell(medians: Mapping[str, float], side: str, base: str) -> str:
    """Write the ratio to the base of the row, and the figure behind it."""
    if side not in medians:
        return ""
    value, whole = shown(medians[side]), medians[base]
    if side == base or not whole:
        return value
    ratio = medians[side] / whole
    text = f"{ratio:.2f}" if ratio >= 0.1 else shown(ratio)
    return f"{text} × ({value})"


def printed(summaries: Sequence[Summary]) -> str:
    """Return the tables of all benchmarks and the targets, for the terminal."""
    parts = [
        "\n".join([f"\n{benchmark}", *table(list(group))])
        for benchmark, group in groupby(summaries, key=lambda s: s.benchmark)
    ]
    return "\n".join([*parts, "\ntargets", *targets.table(summaries)])
