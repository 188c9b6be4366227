"""`counts`: the cheap audit, once or periodically."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ...exceptions import ConfigurationError, DatabaseUnavailable
from ...shutdown import StopSignals
from ..pipeline_settings import NO_TOPICS
from .shared_options import Commands, add_command, say, seconds, session, settings_of

if TYPE_CHECKING:
    from pyspark.sql import Row

    from ..audit.bucket_counts import Span


_NOTHING: Final = (
    "Nothing was compared: the archive has no message of these topics that was created"
    " within --since. ARCHIVE in the settings of the harvester fills it."
)


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "counts",
        execute,
        words="compare message counts of database and lake per time bucket; exit 3"
        " if a bucket differs, 4 if nothing was compared",
    )
    for option, default, words in (
        ("--since", "1d", "how far to look back"),
        ("--bucket", "5m", "width of a bucket"),
        ("--settle", "10m", "how long messages may take to reach the lake"),
        ("--every", None, "repeat at this interval until SIGTERM"),
    ):
        parser.add_argument(
            option,
            type=seconds,
            default=default,
            metavar="TIME",
            help=words + (f" (default: {default})" if default else ""),
        )


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Return 0; 3 if a bucket differed in any comparison; 4 if there was none."""
    settings = settings_of(chosen, defaults)
    outboxes = settings.outboxes()
    if not outboxes or "" in outboxes:
        raise ConfigurationError(
            "counts needs the outbox's database: set DATABASE_URL and OUTBOX_SOURCE."
        )
    if not (settings.topics or settings.topic_pattern):
        raise ConfigurationError(NO_TOPICS)
    if min(chosen.bucket, chosen.since) < 1:
        raise ConfigurationError("--bucket and --since must be at least 1s.")
    found, is_available, has_compared = Counter[str](), True, False
    with StopSignals() as signals, session(settings) as spark:
        # Spark has replaced the handler for Ctrl-C.
        signals.listen()
        from ..audit.bucket_counts import count
        from ..lake import tables

        tables.create(spark, settings)
        while True:
            try:
                rows = count(spark, settings, _span(chosen))
                _print(rows)
                found.update(row["state"] for row in rows)
                is_available = has_compared = True
            except DatabaseUnavailable as error:
                if chosen.every is None:
                    raise
                if is_available:
                    say(f"{error} Trying again every {chosen.every:g} s.")
                is_available = False
            if chosen.every is None or signals.stop.wait(chosen.every):
                if has_compared and not found:
                    say(_NOTHING)
                return _exit_code(found)


def _exit_code(found: Mapping[str, int]) -> int:
    from ..audit.bucket_counts import DIFFERENT
    from ..audit.verdict import EXIT_BROKEN, EXIT_NOT_JUDGED

    if not found:
        return EXIT_NOT_JUDGED
    return EXIT_BROKEN if DIFFERENT in found else 0


def _print(rows: Sequence[Row]) -> None:
    """Print the buckets that differ, and the totals."""
    from ..audit.bucket_counts import DIFFERENT, EQUAL, OPEN

    found = Counter(row["state"] for row in rows)
    for row in rows:
        if row["state"] == DIFFERENT:
            start = datetime.fromtimestamp(row["bucket"], UTC)
            _write({**row.asDict(), "bucket": start.isoformat()})
    now = datetime.now(UTC).isoformat(timespec="seconds")
    _write({"at": now, **{s: found[s] for s in (EQUAL, OPEN, DIFFERENT)}})


def _span(chosen: Namespace) -> Span:
    from ..audit.bucket_counts import Span

    width = int(chosen.bucket)
    return Span(
        since=int(time.time() - chosen.since) // width * width,
        width=width,
        settle=int(chosen.settle),
    )


def _write(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
