"""
Metrics of the pipeline, in a file for Prometheus' textfile collector.

The commands are no servers that could be scraped. The file is replaced
atomically: a scrape never sees half of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

PREFIX: Final = "django_outbox_pipeline_"


class PipelineFigure(NamedTuple):
    """A metric, and what its label tells apart."""

    name: str
    """Without the prefix."""
    kind: str
    """`counter` or `gauge`."""
    label: str
    """Empty: there is one value."""
    text: str

    @property
    def exported_name(self) -> str:
        """The name that a query uses."""
        return f"{PREFIX}{self.name}"


PIPELINE_FIGURES: Final = (
    PipelineFigure("rows_total", "counter", "query", "Rows read by the query"),
    PipelineFigure("batches_total", "counter", "query", "Batches that it finished"),
    PipelineFigure("batch_seconds", "gauge", "query", "Duration of the last batch"),
    PipelineFigure("copies_total", "counter", "query", "Duplicates that it dropped"),
    PipelineFigure("late_total", "counter", "query", "Messages out of order"),
    PipelineFigure(
        "quarantined_total", "counter", "query", "Records that went to quarantine"
    ),
    PipelineFigure("lag_records", "gauge", "query", "Records beyond the last batch"),
    PipelineFigure(
        "last_batch_timestamp_seconds", "gauge", "query", "Unix time of its last batch"
    ),
    PipelineFigure(
        "audit_broken", "gauge", "promise", "1 if the audit found it broken"
    ),
    PipelineFigure(
        "audit_judged_messages", "gauge", "promise", "Messages that it was judged by"
    ),
    PipelineFigure(
        "audit_timestamp_seconds", "gauge", "", "Unix time of the last audit"
    ),
)
"""All metrics of the commands."""

Values: TypeAlias = Mapping[str, Mapping[str, float]]
"""Values by the figure's name and the label's value."""


_LINE: Final = re.compile(PREFIX + r'(\w+)(?:\{\w+="([^"]*)"\})? (\S+)')


def read(path: Path) -> dict[str, dict[str, float]]:
    """Return the metrics of a file that was written here; none if there is no file."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return {}
    values: dict[str, dict[str, float]] = {}
    for match in filter(None, map(_LINE.fullmatch, lines)):
        name, of, value = match.groups(default="")
        values.setdefault(name, {})[of] = float(value)
    return values


def write(path: Path, values: Values) -> None:
    """
    Replace a file by these metrics.

    Raises:
        OSError: the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(_text(values), "utf-8")
    partial.replace(path)


def _text(values: Values) -> str:
    lines = []
    for figure in PIPELINE_FIGURES:
        if not (found := values.get(figure.name)):
            continue
        name = figure.exported_name
        lines += [f"# HELP {name} {figure.text}", f"# TYPE {name} {figure.kind}"]
        for of, value in found.items():
            label = f'{{{figure.label}="{of}"}}' if figure.label else ""
            lines.append(f"{name}{label} {value}")
    return "\n".join(lines) + "\n"
