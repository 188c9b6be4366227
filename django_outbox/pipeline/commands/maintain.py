"""`maintain`: delete old rows, compact, vacuum; safe while the pipeline runs."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from ..lake.tables import SCHEMAS
from .shared_options import Commands, add_command, say, session, settings_of


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "maintain",
        execute,
        words="delete rows older than their retention, compact the tables, vacuum",
    )
    parser.add_argument(
        "--table",
        action="append",
        dest="names",
        metavar="TABLE",
        help=f"table to maintain, repeatable: {', '.join(SCHEMAS)} or typed/TOPIC; "
        "default: all",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="also sort silver and latest by source, topic and key; rewrites them",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only count the rows to delete; change nothing",
    )


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Print one line for each table; return 1 if one was not finished."""
    settings = settings_of(chosen, defaults)
    with session(settings) as spark:
        from ..lake.maintenance import maintain
        from ..lake.run_lease import MAINTENANCE, lease

        def abandon() -> None:
            """Commit nothing more: another command may delete the new files."""
            spark.interruptAll()

        unfinished = []
        held = lease(
            spark,
            settings,
            purpose="maintain",
            name=MAINTENANCE,
            on_loss=abandon,
            waiting=say,
        )
        with nullcontext() if chosen.dry_run else held as keeper:
            for done in maintain(
                spark,
                settings,
                names=chosen.names or (),
                cluster=chosen.cluster,
                dry_run=chosen.dry_run,
                check=keeper.check if keeper else lambda: None,
            ):
                sys.stdout.write(f"{done}\n")
                sys.stdout.flush()
                if not done.is_finished:
                    unfinished.append(done.table)
    if unfinished:
        again = " ".join(f"--table {table}" for table in unfinished)
        say(f"Not finished: {', '.join(unfinished)}. Run it again with {again}.")
        return 1
    return 0
