"""What `manage.py outbox cluster init` does."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.management.base import CommandError
from django.db import connections, transaction

from ..clusters import NEXT_STEP, misfits, read_numbering, statements
from ..conf import settings
from ..models import OutboxRecord
from ..records import Numbering


def init(alias: str, *, above: int = 0) -> Iterator[str]:
    """Make the outbox of a database this cluster's; say what was done."""
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        changes = _statements(alias, above)
        for statement in changes:
            cursor.execute(statement)
    if not changes:
        yield "nothing to do"
    yield from describe(alias)


def print_init(alias: str, *, above: int = 0) -> Iterator[str]:
    """Show the SQL that `init` would run now."""
    changes = _statements(alias, above)
    yield from ["BEGIN;", *changes, "COMMIT;"] if changes else ["-- nothing to do"]


def check(alias: str) -> Iterator[str]:
    """
    Say what the outbox of a database is like.

    Raises:
        CommandError: it is not this cluster's.
    """
    found = misfits(
        _numbering(alias),
        cluster=settings.CLUSTER_ID,
        count=settings.CLUSTERS_COUNT,
    )
    if wrong := "; ".join(found):
        raise CommandError(f"In the database {alias!r}, {wrong}. {NEXT_STEP}")
    yield from describe(alias)


def describe(alias: str) -> Iterator[str]:
    """Say which cluster this is and how its ids go on."""
    found = _numbering(alias)
    cluster, count = settings.CLUSTER_ID, settings.CLUSTERS_COUNT
    yield f"cluster  {cluster} of {count} in the database {alias!r}"
    yield f"rows     cluster_id {found.default} by default"
    yield f"ids      every {found.increment}, now at {found.last_id}"


def _statements(alias: str, above: int) -> list[str]:
    return statements(
        OutboxRecord._meta.db_table,
        _numbering(alias),
        cluster=settings.CLUSTER_ID,
        count=settings.CLUSTERS_COUNT,
        above=above,
    )


def _numbering(alias: str) -> Numbering:
    return read_numbering(connections[alias], OutboxRecord._meta.db_table)
