"""The verb `grants` of `manage.py outbox`: least privileges of each role, as SQL."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any, Final

from django.core.management.base import CommandError
from django.db import Error, connections

from ..models import OutboxRecord
from ..operations.grants import grants as statements_of
from ..postgres.outbox_schema import read_schema
from ..wording import first_line
from .answer import Answer

_ROLES: Final = {
    "app": "role that stashes",
    "harvester": "role that harvests",
    "consumer": "role that consumes",
    "operator": "role of this command",
}


def add_parsers(verbs: Any, shared: Sequence[ArgumentParser]) -> None:
    """Add the options of the verb."""
    options = verbs.add_parser(
        "grants", help="print the minimal privileges as SQL", parents=shared
    )
    for name, words in _ROLES.items():
        options.add_argument(f"--{name}", metavar="ROLE", help=words)
    options.set_defaults(run=grants)


def grants(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """
    Show the statements for an outbox, with the schema in which its database has it.

    A role that has no rights yet may not reach the database, or not see the schema:
    then the names have no schema, and a comment says so.
    """
    roles = {name: options[name] for name in _ROLES}
    if not any(roles.values()):
        raise CommandError(f"Name a role: --{', --'.join(_ROLES)}.")
    table = OutboxRecord._meta.db_table
    schema, why = None, f"its search_path has no table {table!r}"
    try:
        schema = read_schema(connections[alias], table)
    except Error as error:
        why = first_line(error)
    statements = list(statements_of(table, schema, **roles))
    answer.document |= {
        "schema": schema.name if schema else None,
        "statements": statements,
    }
    if schema is None:
        answer.say(
            f"-- The database {alias!r} does not show the schema of the outbox: {why}.",
            "-- Run these statements with the search_path of the outbox.",
        )
    answer.say_sql(statements)
