"""The verb `cluster` of `manage.py outbox`: set up the outbox of one cluster."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError
from django.db import connections, transaction

from ..clusters.cluster_ids import (
    NEXT_STEP,
    mismatches,
    read_numbering,
    statements,
)
from ..conf import settings
from ..message.record import Numbering
from ..models import OutboxRecord
from ..postgres.outbox_schema import read_schema
from .answer import Answer


def add_parsers(verbs: Any, shared: Sequence[ArgumentParser]) -> None:
    """Add the options of the verb."""
    options = verbs.add_parser(
        "cluster", help="make this outbox one of several", parents=shared
    )
    options.add_argument("action", choices=("init",))
    options.add_argument(
        "--above", type=int, default=0, metavar="ID", help="use only higher ids"
    )
    instead = options.add_mutually_exclusive_group()
    instead.add_argument(
        "--check", action="store_true", help="only check whether it has run"
    )
    instead.add_argument("--dry-run", action="store_true", help="only print SQL")
    options.set_defaults(run=cluster)


def cluster(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """Set up the outbox for this cluster, or check whether it is."""
    if options["check"]:
        check(alias, answer)
    elif options["dry_run"]:
        print_init(alias, answer, above=options["above"])
    else:
        init(alias, answer, above=options["above"])


def init(alias: str, answer: Answer, *, above: int) -> None:
    """Number the outbox of a database for this cluster; say what was done."""
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        changes = _statements(alias, above)
        for statement in changes:
            cursor.execute(statement)
    answer.document["statements"] = changes
    if not changes:
        answer.say("nothing to do")
    describe(alias, answer)


def print_init(alias: str, answer: Answer, *, above: int) -> None:
    """Show the SQL that `init` would run now."""
    changes = _statements(alias, above)
    answer.document["statements"] = changes
    answer.say_sql(["BEGIN;", *changes, "COMMIT;"] if changes else ["-- nothing to do"])


def check(alias: str, answer: Answer) -> None:
    """
    Say how the outbox of a database is numbered.

    Raises:
        CommandError: it is not numbered for this cluster.
    """
    describe(alias, answer)
    found = list(
        mismatches(
            _numbering(alias),
            cluster=settings.CLUSTER_ID,
            count=settings.CLUSTERS_COUNT,
        )
    )
    answer.document["mismatches"] = found
    if wrong := "; ".join(found):
        raise CommandError(f"In the database {alias!r}, {wrong}. {NEXT_STEP}")


def describe(alias: str, answer: Answer) -> None:
    """Say which cluster this is and how its ids continue."""
    found = _numbering(alias)
    cluster, count = settings.CLUSTER_ID, settings.CLUSTERS_COUNT
    answer.document |= {
        "cluster": cluster,
        "count": count,
        "default": found.default,
        "increment": found.increment,
        "last_id": found.last_id,
    }
    answer.say(
        f"cluster  {cluster} of {count} in the database {alias!r}",
        f"rows     cluster_id {found.default} by default",
        f"ids      every {found.increment}, now at {found.last_id}",
    )


def _statements(alias: str, above: int) -> list[str]:
    table, numbering = OutboxRecord._meta.db_table, _numbering(alias)
    return statements(
        table,
        numbering,
        cluster=settings.CLUSTER_ID,
        count=settings.CLUSTERS_COUNT,
        above=above,
        schema=read_schema(connections[alias], table),
    )


def _numbering(alias: str) -> Numbering:
    return read_numbering(connections[alias], OutboxRecord._meta.db_table)
