"""The charts of an audit, each as SVG text."""

from __future__ import annotations

import io
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from .latency import percentile
from .report import WRONG, Report, shares

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

NO_DATA: Final = "<p>No data.</p>"

MARGIN: Final = timedelta(hours=2)
"""Space before the first and after the last hour."""

_SIZE: Final = (10, 3.2)
"""Width and height of each chart, in inches."""

_BAR: Final = 1 / 30
"""Width of an hour's bar, in days."""


def _chart() -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    return figure, axes


def _by_hour(axes: Axes, hours: Collection[datetime]) -> list[float]:
    """Set up the horizontal axis for hours; return their positions on it."""
    axes.xaxis_date()
    # Messages may be of the year 9999.
    last = min(max(hours), datetime.max.replace(tzinfo=UTC) - MARGIN)
    axes.set_xlim(*_days(min(hours) - MARGIN, last + MARGIN))
    return _days(*hours)


def _days(*times: datetime) -> list[float]:
    """Convert times to matplotlib's dates."""
    return [float(day) for day in date2num(times)]  # type: ignore[no-untyped-call]


def _plain(axis: Axis) -> None:
    """Give the ticks of a logarithmic axis plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter(NullFormatter())


def _svg(figure: Figure) -> str:
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    # The XML declaration before it is not allowed inside HTML.
    text = drawn.getvalue()
    return text[text.index("<svg") :]


def draw_latencies(report: Report) -> str:
    """Draw the cumulative distribution of latencies, one line for each topic."""
    parts = {k: v for k, v in report.by_topic().items() if v.latencies}
    if not parts:
        return NO_DATA
    figure, axes = _chart()
    for (source, topic), part in parts.items():
        pairs = shares(part.latencies)
        axes.step(
            [ms for ms, _ in pairs],
            [100 * share for _, share in pairs],
            where="post",
            label=f"{source}: {topic}",
        )
    axes.set(xscale="log", xlabel="ms", ylabel="% of messages", ylim=(0, 101))
    _plain(axes.xaxis)
    return _svg(figure)


def draw_latencies_by_hour(report: Report) -> str:
    """Draw the median and the 99th percentile of the latency by hour."""
    hours = {hour: part for hour, part in report.by_hour().items() if part.latencies}
    if not hours:
        return NO_DATA
    figure, axes = _chart()
    places = _by_hour(axes, hours)
    for label, share in (("p50", 0.5), ("p99", 0.99)):
        values = [percentile(part.latencies, share) or 0.0 for part in hours.values()]
        axes.plot(places, values, marker="o", label=label)
    axes.set(yscale="log", ylabel="ms")
    _plain(axes.yaxis)
    return _svg(figure)


def draw_wrong_by_hour(report: Report) -> str:
    """Draw a bar for each hour with violations or duplicates."""
    hours = report.by_hour()
    names = [n for n in WRONG if any(part.counts[n] for part in hours.values())]
    if not names:
        return NO_DATA
    figure, axes = _chart()
    places = _by_hour(axes, hours)
    below = [0] * len(hours)
    for name in names:
        counts = [part.counts[name] for part in hours.values()]
        axes.bar(places, counts, bottom=below, width=_BAR, label=name)
        below = [a + b for a, b in zip(below, counts, strict=True)]
    axes.set(ylabel="messages")
    return _svg(figure)
