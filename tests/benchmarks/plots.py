"""
The plots of a run: a bar for each side, a dot for each round.

One file for each figure of a benchmark that is worth a look; the others are in
the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from .readings import Summary, percentile

DRAWN: Final = {
    "backlog": ("rate", "CPU a record"),
    "latency": ("p50", "p99"),
    "growth": ("rate",),
    "pinned": ("rate",),
    "failover": ("without a leader",),
    "floors": ("rate",),
    "stashing": ("a call", "rate"),
    "packages": ("rate",),
    "catching-up": ("until caught up",),
    "consumers": ("rate",),
}
"""The figures that are drawn, by benchmark."""

LOGARITHMIC: Final = frozenset({"latency", "failover"})

_HEIGHT: Final = 0.28
"""Of a bar's place, in inches."""


def draw(summaries: Sequence[Summary], folder: Path) -> list[str]:
    """Draw into a folder; return the files' names."""
    for old in folder.glob("*.svg"):
        old.unlink()
    names = []
    # The same readings give the same file, whenever they are drawn.
    with mpl.rc_context({"svg.hashsalt": "outbox", "svg.fonttype": "none"}):
        for benchmark, figures in DRAWN.items():
            for figure in figures:
                chosen = [
                    s
                    for s in summaries
                    if (s.benchmark, s.figure) == (benchmark, figure)
                ]
                if chosen:
                    name = f"{benchmark}-{figure.replace(' ', '-')}.svg"
                    _bars(chosen, folder / name)
                    names.append(name)
    return names


def _bars(summaries: Sequence[Summary], path: Path) -> None:
    first = summaries[0]
    cases = list(dict.fromkeys(s.case for s in summaries))
    sides = list(dict.fromkeys(s.side for s in summaries))
    ordered = sorted(summaries, key=lambda s: cases.index(s.case))
    # From above to below, with room between two cases.
    places = [-(i + 0.6 * cases.index(s.case)) for i, s in enumerate(ordered)]
    size = (8, 0.9 + _HEIGHT * (len(ordered) + 0.6 * len(cases)))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    colours = [f"C{sides.index(s.side) % 10}" for s in ordered]
    axes.barh(places, [s.median for s in ordered], color=colours, alpha=0.6)
    for place, summary in zip(places, ordered, strict=True):
        axes.plot(summary.values, [place] * len(summary.values), "k.", markersize=3)
    labels = [f"{s.case}: {s.side}" for s in ordered]
    axes.set_yticks(places, labels, fontsize="small")
    axes.set_xlabel(f"{first.benchmark}, {first.figure}: {first.unit}")
    if first.benchmark in LOGARITHMIC:
        low = min(percentile(s.values, 0.0) for s in ordered)
        axes.set(xscale="log", xlim=(low / 2 or 0.1, None))
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, format="svg", metadata={"Date": None})
