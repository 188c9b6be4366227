"""`run`, `ingest` and `refine`: load new records, once or continuously."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...shutdown import StopSignals
from ..pipeline_settings import PipelineSettings
from ..query_progress import (
    STEPS,
    JsonLines,
    LiveLine,
    MetricsFile,
    Observer,
    PlainLines,
)
from .shared_options import Commands, add_command, say, seconds, session, settings_of


def add(commands: Commands) -> None:
    """Add the three commands, which take the same options."""
    for name, words in (
        ("run", "ingest and refine"),
        ("ingest", "Kafka to bronze"),
        ("refine", "bronze to silver, late, latest and quarantine"),
    ):
        parser = add_command(commands, name, execute, words=words)
        when = parser.add_mutually_exclusive_group()
        when.add_argument(
            "--once",
            action="store_true",
            help="process all records that are there now, then exit (the default)",
        )
        when.add_argument(
            "--every",
            type=seconds,
            metavar="TIME",
            help="process new records every 10s, 5m or 1h until SIGTERM",
        )
        parser.add_argument(
            "--log-format",
            choices=("text", "json"),
            default="text",
            help="format of the progress lines; default: %(default)s",
        )


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Run until all records are in the tables, or until SIGTERM."""
    settings = settings_of(chosen, defaults)
    from ..lake.ingest import kafka_options
    from ..payloads.decoder import check

    kafka_options(settings)
    if chosen.command != "ingest":
        check(settings.schemas)
    steps = STEPS if chosen.command == "run" else (chosen.command,)
    with (
        StopSignals() as signals,
        _observers(settings, chosen.log_format, steps) as observers,
        session(settings) as spark,
    ):
        # Spark has replaced the handler for Ctrl-C.
        signals.listen()
        from ..lake.run_lease import lease
        from ..pipeline_run import Hooks, run_every, run_once

        def abandon() -> None:
            """End the queries in the middle of their batches."""
            signals.stop.set()
            for query in spark.streams.active:
                query.stop()

        with lease(
            spark, settings, purpose=chosen.command, on_loss=abandon, waiting=say
        ) as held:
            hooks = Hooks(report=say, check=held.check)
            if chosen.every is None:
                run_once(
                    spark,
                    settings,
                    stop=signals.stop,
                    observers=observers,
                    steps=steps,
                    hooks=hooks,
                )
            else:
                run_every(
                    spark,
                    settings,
                    seconds=chosen.every,
                    stop=signals.stop,
                    observers=observers,
                    steps=steps,
                    hooks=hooks,
                )
    return 0


@contextmanager
def _observers(
    settings: PipelineSettings, log_format: str, steps: Sequence[str]
) -> Iterator[list[Observer]]:
    """Choose how progress is shown; restore the terminal at the end."""
    observers: list[Observer] = []
    if settings.metrics_file:
        file = MetricsFile(Path(settings.metrics_file), queries=steps)
        observers.append(file)
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
