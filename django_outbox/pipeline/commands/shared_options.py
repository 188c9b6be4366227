"""Options, settings and session that the commands share."""

from __future__ import annotations

import logging
import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...exceptions import ConfigurationError
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
"""Takes a command's options and the caller's default settings; returns an exit code."""

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class Commands(Protocol):
    """What `ArgumentParser.add_subparsers()` returns."""

    def add_parser(self, name: str, **kwargs: Any) -> ArgumentParser: ...


def add_command(
    commands: Commands, name: str, execute: Execute, *, words: str
) -> ArgumentParser:
    """Add a command that needs the pipeline's settings."""
    parser = commands.add_parser(name, help=words)
    parser.set_defaults(execute=execute)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="TOML file with settings"
    )
    parser.add_argument("--lake", help="folder or URI of the tables")
    parser.add_argument(
        "--topic",
        action="append",
        dest="topics",
        metavar="TOPIC",
        help="topic to read, repeatable",
    )
    return parser


def settings_of(chosen: Namespace, defaults: Mapping[str, Any]) -> PipelineSettings:
    """
    Build the settings: defaults, file, environment, options; the last one wins.

    Raises:
        ConfigurationError: one line about the first problem.
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
    """Open a session for one command; inside the block PySpark can be imported."""
    from ..session import open_session

    # PySpark logs each error as JSON; the command prints one line instead.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    spark = open_session(settings, progress=say)
    try:
        yield spark
    finally:
        spark.stop()


def require_writable(*files: Path | None) -> None:
    """
    Look at the places of files that a command writes at its end.

    Raises:
        ConfigurationError: this user cannot write one of them.
    """
    for path in filter(None, files):
        if path.is_dir():
            raise ConfigurationError(f"{path} is a folder, not a file.")
        if not path.parent.is_dir():
            raise ConfigurationError(f"The folder of {path} does not exist.")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise ConfigurationError(f"{path} cannot be written by this user.")


def seconds(text: str) -> float:
    """Parse a duration such as `500ms` or `5m`; return seconds."""
    match = re.fullmatch(r"(\d{1,6})(ms|s|m|h|d)", text)
    if not match:
        raise ArgumentTypeError(f"{text!r} must look like 10s, 5m, 1h or 7d")
    return int(match[1]) * _UNITS[match[2]]


def moment(text: str) -> datetime:
    """Parse a time: ISO 8601 (UTC without an offset), or an age such as `2h`."""
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds(text))
    except OverflowError as error:
        raise ArgumentTypeError(f"{text!r} is too long ago") from error
    except ArgumentTypeError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(
            f"{text!r} must be a time such as 2026-01-31T12:00Z or an age such as 2h"
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def say(line: str) -> None:
    """Write a message for people; standard output is for results."""
    sys.stderr.write(f"{line}\n")
