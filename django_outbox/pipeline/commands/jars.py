"""`jars`: download the pinned Java archives and print their paths."""

from __future__ import annotations

import sys

from .shared_options import Commands, say


def add(commands: Commands) -> None:
    """Add the command; it takes no settings."""
    parser = commands.add_parser(
        "jars", help="download the pinned Java archives; print them for --jars"
    )
    parser.set_defaults(execute=execute)


def execute(*_: object) -> int:
    """Print the archives in the format of `spark-submit --jars`."""
    from ..session import spark_jars

    sys.stdout.write(",".join(map(str, spark_jars(progress=say))) + "\n")
    return 0
