"""`backfill`: send the rows of a business table as the first state of their keys."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .shared_options import (
    Commands,
    add_command,
    require_writable,
    say,
    seconds,
    session,
    settings_of,
)

if TYPE_CHECKING:
    from ..resend.position import OpenWriter


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "backfill",
        execute,
        words="send the rows of a table as the first state of their keys",
    )
    parser.add_argument(
        "--table", required=True, help="table or view in the outbox's database"
    )
    parser.add_argument("--to", required=True, metavar="TOPIC", help="target topic")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="COLUMN",
        help="column of the message key, repeatable; default: the primary key",
    )
    parser.add_argument(
        "--columns",
        default="",
        help="columns of the message value, comma-separated; default: all",
    )
    parser.add_argument(
        "--where",
        default="",
        metavar="SQL",
        help="SQL condition for the rows; the table's alias is t",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=60.0,
        metavar="TIME",
        help="how long to wait for open transactions; default: 1m",
    )
    parser.add_argument(
        "--position",
        type=int,
        metavar="ID",
        help="position of an earlier run, to resend the same messages",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the outcome as JSON"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only count the rows; send nothing"
    )


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Return 0 once Kafka has acknowledged all rows."""
    settings = settings_of(chosen, defaults)
    require_writable(chosen.json)
    with session(settings) as spark:
        from ..resend.business_table import backfill, preview
        from ..resend.snapshot import Snapshot

        snapshot = Snapshot(
            table=chosen.table,
            to=chosen.to,
            key=tuple(chosen.key),
            columns=tuple(filter(None, chosen.columns.split(","))),
            where=chosen.where,
        )
        if chosen.dry_run:
            outcome = preview(spark, settings, snapshot)
        else:
            outcome = backfill(
                spark,
                settings,
                snapshot,
                timeout=chosen.timeout,
                position=chosen.position,
                waiting=_WaitReporter(),
                sending=lambda position: say(f"sending with position {position}"),
            )
    sys.stdout.write(f"{outcome.table} -> {outcome.topic}: {outcome.records:,} rows\n")
    if outcome.position is None:
        say("Nothing was sent.")
    else:
        sys.stdout.write(f"position {outcome.position}\n")
    if chosen.json:
        chosen.json.write_text(json.dumps(asdict(outcome)) + "\n", "utf-8")
    return 0


class _WaitReporter:
    """Reports which transactions the snapshot waits for, whenever they change."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def __call__(self, writers: list[OpenWriter]) -> None:
        now = {writer.transaction for writer in writers}
        if now != self._reported:
            self._reported = now
            say(f"waiting for {', '.join(map(str, writers))}")
