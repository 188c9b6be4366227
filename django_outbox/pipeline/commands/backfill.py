"""`backfill`: send a business table's rows as a first state of their keys."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .shared_options import Commands, add_command, say, seconds, session, settings_of

if TYPE_CHECKING:
    from ..lake.position import Writer


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "backfill", execute, words="send a table's rows as a first state"
    )
    parser.add_argument("--table", required=True, help="in the outbox's database")
    parser.add_argument("--to", required=True, metavar="TOPIC")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="COLUMN",
        help="the message's key, repeatable; default: the primary key",
    )
    parser.add_argument(
        "--columns", default="", help="of the value, with commas; default: all"
    )
    parser.add_argument(
        "--where", default="", metavar="SQL", help="condition; the table is called t"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=60.0,
        metavar="TIME",
        help="how long to wait for open transactions; default: 1m",
    )
    parser.add_argument(
        "--position", type=int, metavar="ID", help="of an earlier run, to send again"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the position")
    parser.add_argument("--dry-run", action="store_true", help="count, send nothing")


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Return 0 when all rows are in Kafka."""
    settings = settings_of(chosen, defaults)
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
                waiting=_Waiting(),
            )
    sys.stdout.write(f"{outcome.table} -> {outcome.topic}: {outcome.records:,} rows\n")
    if outcome.position is None:
        say("Nothing was sent.")
    else:
        sys.stdout.write(f"position {outcome.position}\n")
    if chosen.json:
        chosen.json.write_text(json.dumps(asdict(outcome)) + "\n", "utf-8")
    return 0


class _Waiting:
    """Tells of whom the snapshot waits for, each time that it changes."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, writers: list[Writer]) -> None:
        now = {writer.transaction for writer in writers}
        if now != self._told:
            self._told = now
            say(f"waiting for {', '.join(map(str, writers))}")
