"""`repair`: append records of a topic to bronze that it lacks."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from ...exceptions import ConfigurationError
from .shared_options import Commands, add_command, say, session, settings_of


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "repair",
        execute,
        words="append records to bronze that it lacks, although ingest has passed them",
    )
    parser.add_argument("name", metavar="TOPIC", help="topic to read again")
    parser.add_argument(
        "--partition", type=int, metavar="N", help="only this one; default: all"
    )
    parser.add_argument(
        "--from",
        type=int,
        default=0,
        dest="first",
        metavar="OFFSET",
        help="first offset, with --partition; default: the first that Kafka has",
    )
    parser.add_argument(
        "--to",
        type=int,
        dest="last",
        metavar="OFFSET",
        help="last offset, with --partition; default: the last that ingest has read",
    )


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Print one line for each partition that was read."""
    settings = settings_of(chosen, defaults)
    if chosen.partition is None and (chosen.first or chosen.last is not None):
        raise ConfigurationError(
            "--from and --to: offsets belong to a partition; add --partition N."
        )
    from ..kafka_errors import explained_reading
    from ..lake.ingest import kafka_options

    kafka_options(settings)
    with session(settings) as spark:
        from ..lake.run_lease import lease
        from ..lake.topic_repair import repair

        held = lease(spark, settings, purpose="repair", waiting=say)
        with held, explained_reading():
            counts = repair(
                spark,
                settings,
                chosen.name,
                partition=chosen.partition,
                first=chosen.first,
                last=chosen.last,
            )
    for partition, rows in counts.items():
        sys.stdout.write(f"{chosen.name} {partition}: {rows:,} records appended\n")
    if any(counts.values()):
        say("The next run of refine reads them.")
    return 0
