"""
The pipeline's command line: `python -m django_outbox.pipeline COMMAND`.

Parses, builds the settings, runs. Settings come from `--config`, then from
the environment, then from the options, each over the one before.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ..exceptions import ConfigurationError, OutboxError
from ..stopping import StopSignals
from .config import PipelineSettings, build, merge, read_environment, read_file
from .progress import JsonLines, LiveLine, MetricsFile, Observer, PlainLines

PROGRAM: Final = "python -m django_outbox.pipeline"

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def main(
    arguments: Sequence[str] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
    program: str = PROGRAM,
) -> int:
    """
    Run a command and return the exit code.

    Args:
        arguments: Of the command line; this process's own by default.
        defaults: Settings that everything else overrules.
        program: What the command is called in its messages.
    """
    chosen = parser(program).parse_args(arguments)
    try:
        return _COMMANDS[chosen.command](chosen, defaults or {})
    except ConfigurationError as error:
        code, line = 2, " ".join(str(error).split())
    except OutboxError as error:
        code, line = 1, " ".join(str(error).split())
    except Exception as error:
        # PySpark's errors cannot be named where it may not be installed.
        if not type(error).__module__.startswith("pyspark."):
            raise
        code, line = 1, str(error).partition("\n=== Streaming Query ===")[0]
    sys.stderr.write(f"{program} {chosen.command}: {line}\n")
    return code


def parser(program: str = PROGRAM) -> ArgumentParser:
    """Return the parser of all commands."""
    parser = ArgumentParser(
        prog=program, description="Turn Kafka topics into lake tables, on Spark."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser(
        "jars", help="download the pinned Java archives; print them for --jars"
    )
    doctor = commands.add_parser("doctor", help="examine what the pipeline needs")
    _add_settings(doctor)
    for name, words in (
        ("run", "ingest and refine"),
        ("ingest", "Kafka to bronze"),
        ("refine", "bronze to silver, late, latest and quarantine"),
    ):
        run = commands.add_parser(name, help=words)
        _add_settings(run)
        when = run.add_mutually_exclusive_group()
        when.add_argument(
            "--once", action="store_true", help="all that is there now (the default)"
        )
        when.add_argument(
            "--every",
            type=_seconds,
            metavar="TIME",
            help="look for news every 10s, 5m or 1h, until SIGTERM",
        )
        run.add_argument("--log-format", choices=("text", "json"), default="text")
    audit = commands.add_parser(
        "audit", help="compare database, topics and lake; exit 3 if one is wrong"
    )
    _add_settings(audit)
    audit.add_argument("--json", type=Path, metavar="FILE", help="write it as JSON")
    audit.add_argument(
        "--max-copies", type=int, metavar="N", help="exit 4 when there are more"
    )
    return parser


def _add_settings(parser: ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML")
    parser.add_argument("--lake", help="folder or URI of the tables")
    parser.add_argument(
        "--topic", action="append", dest="topics", metavar="TOPIC", help="repeatable"
    )


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,6})(ms|s|m|h)", text)
    if not match:
        raise ArgumentTypeError(f"{text!r} must look like 10s, 5m or 1h")
    return int(match[1]) * _UNITS[match[2]]


def settings_of(chosen: Namespace, defaults: Mapping[str, Any]) -> PipelineSettings:
    """Build the settings of a command that takes them."""
    options = {
        name: value
        for name in ("lake", "topics")
        if (value := getattr(chosen, name)) is not None
    }
    file = read_file(chosen.config) if chosen.config else {}
    return build(merge(defaults, file, read_environment(), options))


def _jars(*_: object) -> int:
    from .session import spark_jars

    sys.stdout.write(",".join(map(str, spark_jars(progress=_say))) + "\n")
    return 0


def _doctor(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    from .doctor import examine

    is_good = True
    for finding in examine(settings_of(chosen, defaults)):
        sign = "ok  " if finding.is_good else "BAD "
        _say(f"{sign} {finding.name}: {finding.detail}")
        if not finding.is_good:
            is_good = False
            _say(f"     {finding.cure}")
    return 0 if is_good else 1


def _run(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    settings = settings_of(chosen, defaults)
    from .ingest import kafka_options
    from .session import open_session

    kafka_options(settings)
    with StopSignals() as signals, _observers(settings, chosen.log_format) as observers:
        spark = open_session(settings, progress=_say)
        # PySpark may be missing until the session has been opened.
        from .running import PARTS, run_every, run_once

        parts = PARTS if chosen.command == "run" else (chosen.command,)
        try:
            if chosen.every is None:
                run_once(
                    spark,
                    settings,
                    stop=signals.stop,
                    observers=observers,
                    parts=parts,
                )
            else:
                run_every(
                    spark,
                    settings,
                    seconds=chosen.every,
                    stop=signals.stop,
                    observers=observers,
                    parts=parts,
                )
        finally:
            spark.stop()
    return 0


def _audit(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    settings = settings_of(chosen, defaults)
    if settings.database_url and not settings.source:
        raise ConfigurationError(
            "source: name the outbox as its messages do (OUTBOX_SOURCE), or unset"
            " DATABASE_URL to compare topics and lake only."
        )
    from .session import open_session

    spark = open_session(settings, progress=_say)
    # PySpark may be missing until the session has been opened.
    from .audit import audit

    try:
        report = audit(spark, settings)
    finally:
        spark.stop()
    sys.stdout.write(report.as_table() + "\n")
    if chosen.json:
        chosen.json.write_text(report.as_json() + "\n", "utf-8")
    return report.exit_code(max_copies=chosen.max_copies)


@contextmanager
def _observers(settings: PipelineSettings, log_format: str) -> Iterator[list[Observer]]:
    """Choose how progress is shown, and leave a terminal as it was."""
    observers: list[Observer] = []
    if settings.metrics_file:
        observers.append(MetricsFile(Path(settings.metrics_file)))
    if log_format == "json":
        yield [*observers, JsonLines(sys.stdout)]
    elif sys.stdout.isatty():
        line = LiveLine(sys.stdout)
        try:
            yield [*observers, line]
        finally:
            line.close()
    else:
        yield [*observers, PlainLines(sys.stdout)]


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


_COMMANDS: Final[dict[str, Callable[[Namespace, Mapping[str, Any]], int]]] = {
    "jars": _jars,
    "doctor": _doctor,
    "run": _run,
    "ingest": _run,
    "refine": _run,
    "audit": _audit,
}

if __name__ == "__main__":
    sys.exit(main())
