"""
Which outbox this is, and the names under which its harvesters elect their leader.

`migrate` gives each outbox an identity, a UUID in a table of one row. When the
settings name no leader topic and no leader group, both are named after it, so that
the names are known only when the database has answered. docs/decisions/identity.md
says why the server's own identifier does not serve.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from .. import conf
from ..clock import boottime
from ..exceptions import ConfigurationError, DatabaseError, WrongOutbox
from ..message.record import Identity
from ..relay.availability import Availability
from ..settings.options import OutboxSettings
from .statements import queries, quoted

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")


class KnownOutbox:
    """
    The settings of one outbox, completed with the identity in its database.

    One thread learns; others may read at any time.
    """

    def __init__(self, options: OutboxSettings, *, table: str) -> None:
        self.options = options
        """With the names of the election, once the database has answered."""
        self.identity: Identity | None = None
        """None: the database has not answered, or the outbox has no identity."""
        self._table = table

    def learn(self, identity: Identity | None) -> OutboxSettings:
        """
        Take the identity that the database holds; return settings with all names.

        Raises:
            ConfigurationError: there is no identity to derive names from.
            WrongOutbox: the database held another outbox before.
        """
        before = self.identity
        if identity and before and identity.outbox != before.outbox:
            raise WrongOutbox(
                f"LEADER_TOPIC: the database now holds outbox {identity.outbox}; it "
                f"held {before.outbox} before. Restart this process."
            )
        self.options = require_names(self.options, identity, table=self._table)
        self.identity = identity or before
        return self.options


def named_by(options: OutboxSettings, identity: Identity | None) -> OutboxSettings:
    """Return settings with the names of the election, as far as they are known."""
    if options.is_named or identity is None:
        return options
    return options.named(identity.outbox)


def require_names(
    options: OutboxSettings, identity: Identity | None, *, table: str
) -> OutboxSettings:
    """
    Return the settings with the names of the election.

    Raises:
        ConfigurationError: they are not set, and there is no identity.
    """
    named = named_by(options, identity)
    if not named.is_named:
        raise ConfigurationError(
            f"LEADER_TOPIC and LEADER_GROUP are not set, and {table!r} has no identity "
            f"to name them after (no row in {table + '_identity'!r}). Run `manage.py "
            "migrate`, or for a table of another tool set both to names that no other "
            "outbox uses."
        )
    return named


def until_answered(ask: Callable[[], T], stop: threading.Event) -> tuple[T] | None:
    """Query the database until it answers; None: stopped before it did."""
    outage = Availability()
    while not stop.is_set():
        try:
            answer = ask()
        except DatabaseError as error:
            now = boottime()
            stop.wait(outage.lost(error, now) - now)
            continue
        outage.reached(boottime())
        return (answer,)
    return None


def read_identity(connection: BaseDatabaseWrapper, table: str) -> Identity | None:
    """Read the identity of the outbox through Django's connection."""
    named = quoted(f"{table}_identity")
    with connection.cursor() as cursor:
        values = {"identity": named, "table": quoted(table)}
        cursor.execute(queries()["has_identity"], values)
        if not cursor.fetchone()[0]:
            return None
        cursor.execute(queries()["identity"].format(identity=named))
        row: Any = cursor.fetchone()
    return Identity(*row) if row else None


def renew_identity(connection: BaseDatabaseWrapper, table: str) -> str:
    """Give a copy of an outbox an identity of its own; return its UUID."""
    named = quoted(f"{table}_identity")
    with connection.cursor() as cursor:
        cursor.execute(queries()["new_identity"].format(identity=named))
        return str(cursor.fetchone()[0])


def named_settings(using: str | None = None) -> OutboxSettings:
    """
    Return the project's settings with the names of its outbox.

    When the names derive from the identity, the first call queries the database.

    Args:
        using: alias of the outbox's database; by default the setting DATABASE, else
            where the routers write outbox records.

    Raises:
        ConfigurationError: there is no identity to derive names from.
        django.db.Error: the database did not answer.
    """
    from ..models.routing import outbox_database

    options = conf.settings.snapshot()
    if options.is_named:
        return options
    return options.named(_outbox_in(outbox_database(using or options.DATABASE)))


@cache
def _outbox_in(alias: str) -> str:
    from django.db import connections

    from ..models import OutboxRecord

    options, table = conf.settings.snapshot(), OutboxRecord._meta.db_table
    identity = read_identity(connections[alias], table)
    require_names(options, identity, table=table)
    assert identity is not None
    return identity.outbox
