"""The verb `identity` of `manage.py outbox`: which outbox this is, and its names."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any

from django.db import connections

from ..conf import settings
from ..models import OutboxRecord
from ..postgres.outbox_identity import named_by, read_identity, renew_identity
from .answer import Answer


def add_parsers(verbs: Any, shared: Sequence[ArgumentParser]) -> None:
    """Add the options of the verb."""
    options = verbs.add_parser(
        "identity", help="show which outbox this is", parents=shared
    )
    options.add_argument(
        "--new",
        action="store_true",
        help="give it a new identity, when its database is a copy of another",
    )
    options.set_defaults(run=identity)


def identity(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """Show which outbox this is, or give it a new identity."""
    if options["new"]:
        renew(alias)
    found = report(alias)
    answer.document |= found
    answer.say(*describe(found))


def report(alias: str) -> dict[str, Any]:
    """Return the identity of the outbox in a database, and the election's names."""
    identity = read_identity(connections[alias], OutboxRecord._meta.db_table)
    options = named_by(settings.snapshot(), identity)
    return {
        "outbox": identity.outbox if identity else None,
        "system": identity.system if identity else None,
        "leader_topic": options.leader_topic if options.is_named else None,
        "leader_group": options.leader_group if options.is_named else None,
    }


def describe(identity: dict[str, Any]) -> Iterator[str]:
    """Describe the report in lines."""
    if identity["outbox"] is None:
        yield "outbox   has no identity; run `manage.py migrate`"
    else:
        yield "outbox   {outbox} in the database {system}".format(**identity)
    if identity["leader_topic"] is not None:
        yield "leader   topic {leader_topic}, group {leader_group}".format(**identity)


def renew(alias: str) -> None:
    """Give the outbox a new identity, and with it other names."""
    renew_identity(connections[alias], OutboxRecord._meta.db_table)
