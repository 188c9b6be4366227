"""`audit`: compare database, topics and lake; the exit code is the verdict."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ...exceptions import ConfigurationError
from .shared_options import (
    Commands,
    add_command,
    moment,
    require_writable,
    seconds,
    session,
    settings_of,
)

LAST: Final = "last"
"""Value of `--since`: begin where the last audit with this value ended."""


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "audit",
        execute,
        words="compare database, topics and lake; exit 3 if a promise is broken, 4 if"
        " nothing was judged",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the report as JSON"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the report as an HTML page"
    )
    parser.add_argument(
        "--metrics",
        type=Path,
        metavar="FILE",
        help="write the verdict as Prometheus text, for a textfile collector",
    )
    parser.add_argument(
        "--max-copies",
        type=int,
        metavar="N",
        help="exit 4 if there are more than N duplicates",
    )
    parser.add_argument(
        "--max-behind-age",
        type=seconds,
        metavar="TIME",
        help="exit 3 if a message has been in its topic for longer than 5m, 1h or 1d"
        " and is not in the lake; default: no limit",
    )
    parser.add_argument(
        "--since",
        type=lambda text: text if text == LAST else moment(text),
        metavar="TIME",
        help="only messages created at or after this time (2026-01-31T12:00Z, or 2h for"
        " two hours ago); `last`: since the end of the last audit with this option that"
        " compared the same",
    )


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Return 0; 3 if broken; 4 if nothing was judged, or for too many duplicates."""
    settings = settings_of(chosen, defaults)
    if "" in settings.outboxes():
        raise ConfigurationError(
            "source: set it to the `outbox-source` header of the messages"
            " (OUTBOX_SOURCE), or unset DATABASE_URL to compare only topics and lake."
        )
    require_writable(chosen.json, chosen.html, chosen.metrics)
    with session(settings) as spark:
        from ..audit import past_audits
        from ..audit.comparison import audit, compared
        from ..audit.page import page
        from ..audit.printout import as_json, as_metrics, as_text
        from ..audit.verdict import judge
        from ..kafka_errors import explained_reading
        from ..textfile import write

        began = datetime.now(UTC)
        since = chosen.since
        if since == LAST:
            since = past_audits.next_start(spark, settings, compared(settings))
        with explained_reading():
            report = audit(
                spark, settings, since=since, max_behind_age=chosen.max_behind_age
            )
        verdict = judge(report, max_copies=chosen.max_copies)
        sys.stdout.write(as_text(report, verdict) + "\n")
        if chosen.json:
            chosen.json.write_text(as_json(report, verdict) + "\n", "utf-8")
        if chosen.html:
            chosen.html.write_text(page(report, verdict, made=began), "utf-8")
        if chosen.metrics:
            write(chosen.metrics, as_metrics(verdict, made=began))
        # Behind what may fail: the next audit begins where a reported one has ended.
        if chosen.since == LAST:
            past_audits.remember(spark, settings, report, verdict, began=began)
    return verdict.exit_code
