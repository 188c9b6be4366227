"""`rebuild`: make silver, late, latest and quarantine again from bronze."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from .shared_options import Commands, add_command, say, session, settings_of


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "rebuild",
        execute,
        words="make silver, late, latest and quarantine again from bronze",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only say how many slices there are; change nothing",
    )


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Print one line for each slice."""
    settings = settings_of(chosen, defaults)
    with session(settings) as spark:
        from ..lake import rebuilding, tables
        from ..lake.run_lease import lease

        if chosen.dry_run:
            tables.create(spark, settings)
            slices = rebuilding.count_slices(spark, settings)
            say(f"Dry run: bronze would be read in {slices:,} slices.")
            return 0
        with lease(spark, settings, purpose="rebuild", waiting=say) as held:
            for done in rebuilding.rebuild(spark, settings, check=held.check):
                sys.stdout.write(f"{done}\n")
                sys.stdout.flush()
    say("The tables are new; refine continues behind what was read.")
    return 0
