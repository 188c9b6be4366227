"""What the commands share: their options, their settings, their session."""

from __future__ import annotations

import logging
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..pipeline_settings import (
    PipelineSettings,
    build,
    merge,
    read_environment,
    read_file,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Execute = Callable[[Namespace, Mapping[str, Any]], int]
"""Runs a command: its options and the caller's defaults in, exit code out."""

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class Commands(Protocol):
    """What `ArgumentParser.add_subparsers()` returns."""

    def add_parser(self, name: str, **kwargs: Any) -> ArgumentParser: ...


def add_command(
    commands: Commands, name: str, execute: Execute, *, words: str
) -> ArgumentParser:
    """Add a command that takes the pipeline's settings."""
    parser = commands.add_parser(name, help=words)
    parser.set_defaults(execute=execute)
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML")
    parser.add_argument("--lake", help="folder or URI of the tables")
    parser.add_argument(
        "--topic", action="append", dest="topics", metavar="TOPIC", help="repeatable"
    )
    return parser


def settings_of(chosen: Namespace, defaults: Mapping[str, Any]) -> PipelineSettings:
    """
    Build the settings: defaults, file, environment, options, each over the last.

    Raises:
        ConfigurationError: with one line for the first problem.
    """
    options = {
        name: value
        for name in ("lake", "topics")
        if (value := getattr(chosen, name)) is not None
    }
    file = read_file(chosen.config) if chosen.config else {}
    return build(merge(defaults, file, read_environment(), options))


@contextmanager
def session(settings: PipelineSettings) -> Iterator[SparkSession]:
    """Open a session for one command; PySpark is certain to be there inside."""
    from ..session import open_session

    # PySpark would tell of each error in JSON; `__main__.py` does in a line.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    spark = open_session(settings, progress=say)
    try:
        yield spark
    finally:
        spark.stop()


def seconds(text: str) -> float:
    """Read a duration: a number and its unit."""
    match = re.fullmatch(r"(\d{1,6})(ms|s|m|h|d)", text)
    if not match:
        raise ArgumentTypeError(f"{text!r} must look like 10s, 5m, 1h or 7d")
    return int(match[1]) * _UNITS[match[2]]


def say(line: str) -> None:
    """Tell people something; standard output is for results."""
    sys.stderr.write(f"{line}\n")
