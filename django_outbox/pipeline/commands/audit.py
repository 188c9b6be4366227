"""`audit`: compare database, topics and lake; the exit code is the verdict."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...exceptions import ConfigurationError
from .shared_options import Commands, add_command, session, settings_of


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "audit",
        execute,
        words="compare database, topics and lake; exit 3 if they disagree",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the report as JSON"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the report as an HTML page"
    )
    parser.add_argument(
        "--max-copies",
        type=int,
        metavar="N",
        help="exit 4 if there are more than N duplicates",
    )


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Return 0; 3 if a promise is broken; 4 if there are too many duplicates."""
    settings = settings_of(chosen, defaults)
    if "" in settings.outboxes():
        raise ConfigurationError(
            "source: set it to the `outbox-source` header of the messages"
            " (OUTBOX_SOURCE), or unset DATABASE_URL to compare only topics and lake."
        )
    with session(settings) as spark:
        from ..audit.comparison import audit
        from ..audit.page import page

        began = datetime.now(UTC)
        report = audit(spark, settings)
    sys.stdout.write(report.as_table() + "\n")
    if chosen.json:
        chosen.json.write_text(report.as_json() + "\n", "utf-8")
    if chosen.html:
        drawn = page(report, made=began, max_copies=chosen.max_copies)
        chosen.html.write_text(drawn, "utf-8")
    return report.exit_code(max_copies=chosen.max_copies)
