"""
The pipeline's command line: `python -m django_outbox.pipeline COMMAND`.

Parses the arguments, runs the command, and turns errors into one line and an
exit code. Settings come from `--config`, then from the environment, then from
the options; each overrides the one before.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..exceptions import ConfigurationError, OutboxError, install_command
from .commands import (
    audit,
    backfill,
    counts,
    doctor,
    forget,
    jars,
    maintain,
    rebuild,
    register,
    repair,
    replay,
    reset,
    run,
)

PROGRAM: Final = "python -m django_outbox.pipeline"

NEEDED: Final = ("pyspark", "matplotlib")
"""Packages of the extra that commands import when they run."""

_COMMANDS: Final = (
    *(jars, doctor, run, audit, counts, maintain),
    *(reset, repair, rebuild, forget, register, replay, backfill),
)


def main(
    arguments: Sequence[str] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
    program: str = PROGRAM,
) -> int:
    """
    Run a command and return the exit code.

    Args:
        arguments: Command line; this process's own by default.
        defaults: Settings with the lowest precedence.
        program: Name of the program in its messages.
    """
    chosen = parser(program).parse_args(arguments)
    try:
        return int(chosen.execute(chosen, defaults or {}))
    except ConfigurationError as error:
        code, line = 2, " ".join(str(error).split())
    except OutboxError as error:
        code, line = 1, " ".join(str(error).split())
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        code = 2
        line = f"{error.name} is not installed. Run: {install_command('spark')}"
    except Exception as error:
        # PySpark may not be installed, so its classes cannot be imported here.
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        text = str(error).partition("\n=== Streaming Query ===")[0]
        code, line = 1, text.partition("\n\tat ")[0]
    sys.stderr.write(f"{program} {chosen.command}: {line}\n")
    return code


def parser(program: str = PROGRAM) -> ArgumentParser:
    """Return the parser of all commands."""
    parser = ArgumentParser(
        prog=program, description="Turn Kafka topics into lake tables with Spark."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
