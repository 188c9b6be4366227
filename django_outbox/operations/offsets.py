"""`manage.py outbox rewind`: set a group's stored offsets to the beginning."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.management.base import CommandError
from django.db import transaction

from ..models import ConsumerOffset
from ..observability.answer import Answer
from ..wording import count


def rewind_topics(
    alias: str, group: str, topics: Sequence[str], answer: Answer
) -> None:
    """
    Make a group read these topics from the beginning.

    Running processes keep their position and store it again: stop the group first.

    Raises:
        CommandError: one of the topics has no stored offset; nothing has changed.
    """
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
