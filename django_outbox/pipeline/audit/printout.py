"""A report and its verdict as JSON and metrics for machines, and as text for people."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from ..textfile import Values
from .report import TABLE_HEAD, Compared, Report
from .verdict import BROKEN, Verdict


def as_json(report: Report, verdict: Verdict) -> str:
    """
    Return one JSON object.

    `verdict`, `promises`, `span` and `compared` say what was judged; `total`,
    `examples`, and `parts` by source, topic and hour have the counts.
    """
    return json.dumps(
        {
            **summary(report, verdict),
            "total": report.whole().as_row(),
            "examples": report.examples,
            "parts": report.parts(),
        }
    )


def summary(report: Report, verdict: Verdict) -> dict[str, Any]:
    """Return `verdict`, `headline`, `promises`, `span` and `compared`, for JSON."""
    return {
        "verdict": verdict.state,
        "headline": verdict.headline,
        "promises": [asdict(promise) for promise in verdict.promises],
        "span": {"oldest": _iso(report.oldest), "newest": _iso(report.newest)},
        "compared": {
            **asdict(report.compared),
            "since": _iso(report.compared.since),
        },
    }


def as_metrics(verdict: Verdict, *, made: datetime) -> Values:
    """Return for each promise whether it is broken, and by how many messages judged."""
    promises = verdict.promises
    return {
        "audit_broken": {p.name: int(p.state == BROKEN) for p in promises},
        "audit_judged_messages": {p.name: p.messages for p in promises},
        "audit_timestamp_seconds": {"": made.timestamp()},
    }


def as_text(report: Report, verdict: Verdict) -> str:
    """Return the table, the examples, what was compared, and the verdict."""
    lines = [TABLE_HEAD, *report.rows()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    text += [f"{name}: ids {ids}" for name, ids in report.examples.items()]
    text += ["", *map(str, verdict.promises), ""]
    text += [describe_span(report), *describe(report.compared)]
    return "\n".join([*text, f"verdict: {verdict.state}. {verdict.headline}"])


def describe_span(report: Report) -> str:
    """Return the number of messages, and when they were created."""
    messages = f"{report.total('messages'):,} messages in the topics"
    if report.oldest is None or report.newest is None:
        return messages
    return (
        f"{messages}; all compared were created from {_time(report.oldest)}"
        f" to {_time(report.newest)}"
    )


def describe(compared: Compared) -> list[str]:
    """Return lines that say which topics, databases and tables were compared."""
    lines = {
        "topics": ", ".join(compared.topics),
        "databases": ", ".join(compared.databases) or "none",
        "lake": compared.lake,
        "tables": ", ".join(compared.tables),
        "since": _time(compared.since) if compared.since else "",
    }
    return [f"{name}: {text}" for name, text in lines.items() if text]


def _time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None
