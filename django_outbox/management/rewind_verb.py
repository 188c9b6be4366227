"""The verb `rewind` of `manage.py outbox`: a group reads from the beginning again."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError
from django.db import transaction

from ..models import ConsumerOffset
from ..wording import count
from .answer import Answer


def add_parsers(verbs: Any, shared: Sequence[ArgumentParser]) -> None:
    """Add the options of the verb."""
    options = verbs.add_parser(
        "rewind",
        help="make a consumer group read topics from the beginning",
        parents=shared,
    )
    options.add_argument("group", metavar="GROUP")
    options.add_argument("topics", nargs="+", metavar="TOPIC")
    options.set_defaults(run=rewind)


def rewind(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """
    Make a group read these topics from the beginning.

    Running processes keep their position and store it again: stop the group first.

    Raises:
        CommandError: one of the topics has no stored offset; nothing has changed.
    """
    group, topics = options["group"], options["topics"]
    rows = ConsumerOffset.objects.using(alias)
    known = {topic for topic, _ in rows.positions(group)}
    if missing := [topic for topic in topics if topic not in known]:
        groups = sorted(set(rows.values_list("group_id", flat=True)))
        there = (
            f"it has offsets of {', '.join(sorted(known))}"
            if known
            else f"groups with offsets: {', '.join(groups) or 'none'}"
        )
        raise CommandError(
            f"The group {group!r} has no stored offset of {', '.join(missing)}; {there}"
            ". Only groups that run with OFFSETS = 'database' have stored offsets."
        )
    with transaction.atomic(using=alias):
        counts = {topic: rows.rewind(group, topic) for topic in topics}
    answer.document |= {"group": group, "partitions": counts}
    for topic, number in counts.items():
        partitions = count(number, "partition")
        answer.say(f"{group} will read {topic} from the beginning: {partitions}")
