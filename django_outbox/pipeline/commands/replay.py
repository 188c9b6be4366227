"""`replay`: send what the lake has once more, to a new topic."""

from __future__ import annotations

import sys
import uuid
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from .shared_options import Commands, add_command, say, seconds, session, settings_of

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
        "selection", "a record that fits all of them, or every record"
    )
    for name, words in (
        (
            "--since",
            "created then or later: 2026-01-31T12:00Z, or 2h for two hours ago",
        ),
        ("--until", "created before"),
    ):
        selection.add_argument(name, type=moment, metavar="TIME", help=words)
    selection.add_argument("--key", action="append", default=[], help="repeatable")
    selection.add_argument(
        "--id",
        type=ids,
        action="append",
        default=[],
        metavar="FROM-TO",
        help="repeatable; also 17, or 17- for all from there on",
    )
    selection.add_argument(
        "--where", default="", metavar="SQL", help="condition on the columns of silver"
    )
    selection.add_argument(
        "--late", action="store_true", help="also what came out of order, in its place"
    )
    parser.add_argument(
        "--to", default="{topic}.replay", metavar="TOPIC", help="default: %(default)s"
    )
    parser.add_argument(
        "--force", action="store_true", help="allow a topic that is in use"
    )
    parser.add_argument(
        "--keep-partitions",
        action="store_true",
        help="as they were, not as the keys have them",
    )
    parser.add_argument("--dry-run", action="store_true", help="count, send nothing")


def execute(chosen: Namespace, defaults: Mapping[str, Any]) -> int:
    """Return 0 when all that was selected is in Kafka."""
    # The option selects; what is in use is what the settings say.
    settings = settings_of(Namespace(**{**vars(chosen), "topics": None}), defaults)
    run = str(uuid.uuid4())
    with session(settings) as spark:
        from ..resend.history import Destination, replay
        from ..resend.selection import Selection

        selection = Selection(
            topics=tuple(chosen.topics or settings.topics),
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
    tell(parts, run=run, is_dry=chosen.dry_run)
    return 0


def tell(parts: list[Part], *, run: str, is_dry: bool) -> None:
    """Write what went where, a line for each source and topic."""
    for part in parts:
        sys.stdout.write(
            f"{part.source} {part.topic} -> {part.destination}:"
            f" {part.records:,} records, {part.bytes:,} bytes\n"
        )
    if not parts:
        say("Nothing fits.")
    elif is_dry:
        duration = timedelta(seconds=round(sum(part.seconds for part in parts)))
        say(
            f"Nothing was sent. It takes about {duration}, if this machine sends as"
            " fast as the one of docs/howto/replay.md: 30,000 records or 20 MB a"
            " second."
        )
    else:
        say(f"All are sent, with the header outbox-replay={run}.")


def moment(text: str) -> datetime:
    """Read a time: ISO 8601, in UTC if it does not say, or an age as `2h`."""
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds(text))
    except ArgumentTypeError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(
            f"{text!r} is neither a time as 2026-01-31T12:00Z nor an age as 2h"
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def ids(text: str) -> tuple[int, int]:
    """Read a range of ids, both ends included: `17`, `17-20` or `17-`."""
    first, dash, last = text.partition("-")
    try:
        low = int(first)
        high = int(last) if last else _LAST if dash else low
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} must look like 17, 17-20 or 17-") from error
    if low > high:
        raise ArgumentTypeError(f"{text!r} is empty: it begins behind its end")
    return low, high
