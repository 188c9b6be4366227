"""The verb `prune` of `manage.py outbox`: delete old rows in chunks."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from ..models import ArchivedRecord, ProcessedMessage
from ..wording import count, duration
from .answer import Answer
from .confirmation import confirm
from .times import age, given_age


def add_parsers(verbs: Any, shared: Sequence[ArgumentParser]) -> None:
    """Add the options of the verb."""
    options = verbs.add_parser(
        "prune", help="delete old rows of the archive table", parents=shared
    )
    options.add_argument(
        "--older-than", type=age, metavar="AGE", help="90d, 12h or 30m; always needed"
    )
    options.add_argument(
        "--processed",
        action="store_true",
        help="delete old processed keys instead: their messages count as new again",
    )
    options.add_argument("--yes", action="store_true", help="do not ask")
    options.set_defaults(run=prune)


def prune(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """Delete the rows of one table that are older than an age."""
    if options["older_than"] is None:
        raise CommandError(
            "Say how old the rows must be, for instance --older-than 90d."
        )
    limit = given_age(options["older_than"])
    table = ProcessedMessage if options["processed"] else ArchivedRecord
    confirm(
        f"Delete rows of {table._meta.db_table} older than "
        f"{duration(limit.total_seconds())} for good?",
        is_confirmed=options["yes"],
    )
    answer.document |= {"table": table._meta.db_table, "pruned": 0}
    began = time.monotonic()
    for deleted in table.objects.using(alias).older_than(limit).prune():
        answer.document["pruned"] += deleted
        answer.say(f"{count(answer.document['pruned'], 'row')} pruned")
        answer.flush()
    # Others have become old enough meanwhile.
    since = limit + timedelta(seconds=time.monotonic() - began + 1)
    if table.objects.using(alias).older_than(since).exists():
        raise CommandError("Rows are left: others may be pruning. Run this again.")
