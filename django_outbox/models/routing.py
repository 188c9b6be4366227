"""The database of the outbox."""

from __future__ import annotations

from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from ..conf import OutboxImproperlyConfigured
from . import OutboxRecord


def outbox_database(chosen: str | None) -> str:
    """Return the chosen alias, else the answer of the routers."""
    return chosen or router.db_for_write(OutboxRecord)


def require_postgresql(alias: str) -> BaseDatabaseWrapper:
    """
    Return the connection of a database that can hold an outbox.

    Raises:
        OutboxImproperlyConfigured: there is no such database, or it is another kind.
    """
    if alias not in connections:
        raise OutboxImproperlyConfigured(
            f"DATABASE: there is no database {alias!r}; choose one of "
            f"{', '.join(sorted(connections))}."
        )
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise OutboxImproperlyConfigured(
            f"DATABASE: {alias!r} is {connection.display_name}; the outbox needs "
            "PostgreSQL."
        )
    return connection


def require_committing(alias: str) -> str:
    """
    Return the alias of a database whose transactions Django commits.

    Raises:
        OutboxImproperlyConfigured: it cannot hold an outbox, or AUTOCOMMIT is off
            there: `transaction.atomic` ends without a commit then.
    """
    if not require_postgresql(alias).settings_dict["AUTOCOMMIT"]:
        raise OutboxImproperlyConfigured(
            f"DATABASE: DATABASES[{alias!r}] has AUTOCOMMIT = False, so that Django "
            "commits nothing here: choose an alias of the same database without that."
        )
    return alias
