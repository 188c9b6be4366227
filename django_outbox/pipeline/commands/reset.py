"""`reset`: let ingest read topics again from their first records, or from a time."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from .shared_options import Commands, add_command, moment, say, session, settings_of


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "reset",
        execute,
        words="start a topic over, after it was created again or lost records",
    )
    parser.add_argument(
        "names", nargs="+", metavar="TOPIC", help="topic to read again, repeatable"
    )
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="begin at the first record at or after this time: 2026-01-31T12:00Z, or 2h"
        " for two hours ago; default: the first record that Kafka still has",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only print what would be read; change nothing",
    )


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Print one line for each partition: what the next run will read."""
    settings = settings_of(chosen, defaults)
    from ..lake.ingest import kafka_options

    kafka_options(settings)
    with session(settings) as spark:
        from ..lake.run_lease import lease
        from ..lake.topic_reset import reset

        held = lease(spark, settings, purpose="reset", waiting=say)
        are_read = False
        with nullcontext() if chosen.dry_run else held:
            for name in chosen.names:
                ranges = reset(
                    spark, settings, name, since=chosen.since, dry_run=chosen.dry_run
                )
                sys.stdout.writelines(f"{part}\n" for part in ranges)
                are_read |= bool(ranges)
                if not ranges:
                    sys.stdout.write(
                        f"{name}: Kafka no longer has this topic; ingest goes on"
                        " without it\n"
                    )
    if chosen.dry_run:
        say("Dry run: nothing was changed.")
    elif are_read:
        say(
            "The next run of ingest reads these records. The lake keeps all rows, and"
            " refine recognises records that it has read before."
        )
    return 0
