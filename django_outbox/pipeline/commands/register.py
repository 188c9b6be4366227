"""`register`: give the lake's tables names in a catalog."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from .shared_options import Commands, add_command, session, settings_of


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "register",
        execute,
        words="name the tables and the views `current` and `history` in a catalog",
    )
    parser.add_argument(
        "schema",
        metavar="SCHEMA",
        help="schema of the names, such as outbox or main.outbox; made if missing",
    )


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Print each name."""
    settings = settings_of(chosen, defaults)
    with session(settings) as spark:
        from ..lake.catalog import register

        for name in register(spark, settings, chosen.schema):
            sys.stdout.write(f"{name}\n")
    return 0
