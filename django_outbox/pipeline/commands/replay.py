"""`replay`: send records of the lake to Kafka again, to a new topic."""

from __future__ import annotations

import sys
import uuid
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from ..pipeline_settings import split_topics
from .shared_options import Commands, add_command, moment, say, session, settings_of

if TYPE_CHECKING:
    from ..resend.history import Part

_LAST: Final = 2**63 - 1
"""No id is higher."""


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "replay", execute, words="send records of silver to Kafka again"
    )
    selection = parser.add_argument_group(
        "selection", "records that match all options; without any, every record"
    )
    for name, words in (
        (
            "--since",
            "created at or after this time: 2026-01-31T12:00Z, or 2h for two hours ago",
        ),
        ("--until", "created before this time"),
    ):
        selection.add_argument(name, type=moment, metavar="TIME", help=words)
    selection.add_argument(
        "--key", action="append", default=[], help="message key, repeatable"
    )
    selection.add_argument(
        "--id",
        type=ids,
        action="append",
        default=[],
        metavar="FROM-TO",
        help="range of ids, repeatable: 17-20, 17, or 17- without an end",
    )
    selection.add_argument(
        "--where",
        default="",
        metavar="SQL",
        help="SQL condition on the columns of silver",
    )
    selection.add_argument(
        "--late",
        action="store_true",
        help="include records that arrived out of order, sorted by id",
    )
    parser.add_argument(
        "--to",
        default="{topic}.replay",
        metavar="TOPIC",
        help="target topic; default: %(default)s",
    )
    parser.add_argument(
        "--force", action="store_true", help="allow a target topic that is in use"
    )
    parser.add_argument(
        "--keep-partitions",
        action="store_true",
        help="keep the original partitions instead of hashing the keys",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only count the records; send nothing"
    )


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Return 0 once Kafka has acknowledged all selected records."""
    # --topic selects records; the settings say which topics are in use.
    settings = settings_of(Namespace(**{**vars(chosen), "topics": None}), defaults)
    run = str(uuid.uuid4())
    with session(settings) as spark:
        from ..resend.history import Destination, replay
        from ..resend.selection import Selection

        selection = Selection(
            topics=split_topics(chosen.topics or settings.topics),
            topic_pattern="" if chosen.topics else settings.topic_pattern,
            since=chosen.since,
            until=chosen.until,
            keys=tuple(chosen.key),
            ids=tuple(chosen.id),
            where=chosen.where,
            includes_late=chosen.late,
        )
        destination = Destination(
            to=chosen.to,
            is_forced=chosen.force,
            keeps_partitions=chosen.keep_partitions,
        )
        parts = replay(
            spark, settings, selection, destination, run=run, is_dry=chosen.dry_run
        )
    print_summary(parts, run=run, is_dry=chosen.dry_run)
    return 0


def print_summary(parts: list[Part], *, run: str, is_dry: bool) -> None:
    """Print one line for each source and topic."""
    for part in parts:
        sys.stdout.write(
            f"{part.source} {part.topic} -> {part.destination}:"
            f" {part.records:,} records, {part.bytes:,} bytes\n"
        )
    if not parts:
        say("No records match.")
    elif is_dry:
        duration = timedelta(seconds=round(sum(part.seconds for part in parts)))
        say(
            f"Dry run: nothing was sent. Estimated duration: {duration}, at 30,000"
            " records or 20 MB per second (see docs/howto/replay.md)."
        )
    else:
        say(f"All records were sent, with the header outbox-replay={run}.")


def ids(text: str) -> tuple[int, int]:
    """Parse a range of ids, both ends included: `17`, `17-20` or `17-`."""
    first, dash, last = text.partition("-")
    try:
        low = int(first)
        high = int(last) if last else _LAST if dash else low
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} must look like 17, 17-20 or 17-") from error
    if low > high:
        raise ArgumentTypeError(f"{text!r} is empty: its start is above its end")
    return low, high
