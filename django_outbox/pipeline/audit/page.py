"""An audit as one self-contained HTML page: verdict, promises, table, charts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from string import Template
from typing import Final

from .charts import draw_latencies, draw_latencies_by_hour, draw_wrong_by_hour
from .printout import describe, describe_span
from .report import TABLE_HEAD, WRONG, Report
from .verdict import BROKEN, OK, Verdict

MEANINGS: Final = {
    "lost": "sent according to the database, but neither in the topic nor the lake",
    "unexpected": "in the topic, but not in the database",
    "copies": "deliveries after the first (duplicates)",
    "altered": "key or value differs between database, topic, lake or duplicates",
    "lake_lost": "not in the lake, although refine has processed its offset",
    "lake_copies": "more than once in the lake",
    "overdue": "in the topic for longer than --max-behind-age, and not in the lake",
    "disorder": "first delivered after a later message of the same key",
    "split_keys": "keys in more than one partition",
    "latest_copies": "keys with more than one row in latest",
    "latest_stale": "keys whose row in latest is missing or older than the lake's",
}
"""What each count of `WRONG` means for a message or a key."""

_PAGE: Final = Template(
    """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Outbox audit: $verdict</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem;
         padding: 0 1rem; color: #1c2733; }
  h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
  .verdict { border-left: .5rem solid; padding: .5rem 1rem; background: #f5f7f9; }
  .verdict strong { font-size: 1.4rem; display: block; }
  .good { border-color: #1a7f4b } .warn { border-color: #c98a00 }
  .bad { border-color: #c62828 }
  .scroll { overflow-x: auto }
  table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
  th, td { text-align: left; padding: .3rem .8rem .3rem 0; white-space: nowrap;
           border-bottom: 1px solid #dde3e9; }
  td.note { white-space: normal; color: #51606e }
  figure { margin: 0 } figure svg { max-width: 100%; height: auto }
</style>
<h1>Outbox audit</h1>
<p class="verdict $tone"><strong>$verdict</strong>$summary</p>
<h2>Promises</h2>
<div class="scroll">$promises</div>
<h2>Topics</h2>
<div class="scroll">$topics</div>
<h2>Problems</h2>
<div class="scroll">$findings</div>
<h2>Latency from the row to the topic</h2>
<figure>$latencies</figure>
<h2>Latency by hour of creation</h2>
<figure>$hours</figure>
<h2>Duplicates and violations by hour of creation</h2>
<figure>$wrong</figure>
<h2>Compared</h2>
<ul>$compared</ul>
<p>Created $made. Hours are the hours in which rows were created, in UTC.</p>
</html>
"""
)


def page(report: Report, verdict: Verdict, *, made: datetime) -> str:
    """Return the HTML."""
    pending, behind = report.total("pending"), report.total("behind")
    lines = [f"<li>{escape(line)}" for line in describe(report.compared)]
    return _PAGE.substitute(
        tone=_tone(verdict),
        verdict=escape(verdict.headline),
        summary=f"{describe_span(report)}. {pending:,} pending in the database;"
        f" {behind:,} not yet in the lake.",
        promises=_promises(verdict),
        topics=_table(TABLE_HEAD, report.rows()),
        findings=_findings(report),
        latencies=draw_latencies(report),
        hours=draw_latencies_by_hour(report),
        wrong=draw_wrong_by_hour(report),
        compared="".join(lines),
        made=made.strftime("%Y-%m-%d %H:%M:%S UTC"),
    )


def _tone(verdict: Verdict) -> str:
    if verdict.state == BROKEN:
        return "bad"
    return "good" if verdict.state == OK and verdict.is_complete else "warn"


def _promises(verdict: Verdict) -> str:
    rows = [(p.name, p.state, f"{p.messages:,}", p.note) for p in verdict.promises]
    return _table(("promise", "verdict", "messages judged", "note"), rows)


def _findings(report: Report) -> str:
    rows = [
        (name, f"{count:,}", _ids(report.examples.get(name, [])), MEANINGS[name])
        for name in WRONG
        if (count := report.total(name))
    ]
    if not rows:
        return "<p>None.</p>"
    return _table(("problem", "count", "first ids", "meaning"), rows)


def _ids(ids: list[int]) -> str:
    return ", ".join(map(str, ids))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    cells = "".join(f"<th>{escape(name)}" for name in head)
    lines = [f"<tr>{cells}"]
    for row in rows:
        *cells_, last = (escape(cell) for cell in row)
        line = "".join(f"<td>{cell}" for cell in cells_)
        lines.append(f'<tr>{line}<td class="note">{last}')
    return f"<table>{''.join(lines)}</table>"
