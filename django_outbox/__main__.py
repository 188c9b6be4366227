"""
The command line of django-outbox where there is no Django project.

    python -m django_outbox reap -f reaper.yaml

Wrong settings end it with exit code 2 and one line that names the key.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .exceptions import ConfigurationError, install_command

PROGRAM: Final = "python -m django_outbox"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    try:
        return _reap(chosen)
    except ConfigurationError as error:
        line = " ".join(str(error).split())
        sys.stderr.write(f"{PROGRAM} {chosen.command}: {line}\n")
        return 2


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        description="A transactional outbox for PostgreSQL and Apache Kafka.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    reap = commands.add_parser(
        "reap",
        help="harvest an outbox table that any application writes",
        description="Harvest an outbox table to Kafka, without a Django project. Start"
        " several: one leads, the others stand by and take over when it ends or fails."
        " The first SIGTERM or SIGINT begins an orderly shutdown, a second one exits at"
        " once.",
        epilog="The file has the keys of goharvest's reaper; docs/howto/standalone.md"
        " lists them.",
    )
    reap.add_argument(
        "-f",
        "--file",
        type=Path,
        required=True,
        metavar="FILE",
        help="settings in YAML: the database, the table, Kafka, the leader group",
    )
    reap.add_argument(
        "--name",
        help="name of this process in logs and events (default: as in the file, else"
        " host-pid)",
    )
    reap.add_argument(
        "--solo",
        action="store_true",
        help="lead without an election, for development: never start two",
    )
    reap.add_argument(
        "--drain",
        action="store_true",
        help="harvest until the table is empty, show the progress, then exit",
    )
    reap.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="json: each event as one line on standard output, and the log as JSON on"
        " standard error",
    )
    return parser


def _reap(chosen: Namespace) -> int:
    try:
        from .standalone.reaper import reap
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise ConfigurationError(
            f"the package PyYAML is missing: {install_command('reaper')}."
        ) from None
    return reap(
        chosen.file,
        log_format=chosen.log_format,
        name=chosen.name,
        solo=chosen.solo,
        drain=chosen.drain,
    )


if __name__ == "__main__":
    sys.exit(main())
