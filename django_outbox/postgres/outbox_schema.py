"""
The schema of an outbox.

A session finds tables through its `search_path`. SQL that is printed runs in another
session, which may find the tables of another outbox under the same names: the schema
makes them unambiguous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .statements import queries, quoted

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class Schema(NamedTuple):
    """The schema of an outbox."""

    name: str
    is_open: bool
    """Whether PUBLIC, and so every role, has USAGE on it."""


def read_schema(connection: BaseDatabaseWrapper, table: str) -> Schema | None:
    """Return the schema in which a connection finds a table; None: it finds none."""
    with connection.cursor() as cursor:
        cursor.execute(queries()["outbox_schema"], {"table": quoted(table)})
        row = cursor.fetchone()
    return Schema(*row) if row else None


def qualified(schema: Schema | None, name: str) -> str:
    """Quote a name, with its schema when that is known."""
    return f"{quoted(schema.name)}.{quoted(name)}" if schema else quoted(name)
