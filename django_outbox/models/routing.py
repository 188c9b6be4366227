"""The database of the outbox."""

from __future__ import annotations

from django.db import connections, router

from ..exceptions import ConfigurationError
from . import OutboxRecord


def outbox_database(chosen: str | None) -> str:
    """Return the chosen alias, else the answer of the routers."""
    return chosen or router.db_for_write(OutboxRecord)


def require_committing(alias: str) -> str:
    """
    Return the alias of a database whose transactions Django commits.

    Raises:
        ConfigurationError: there is no such database, or AUTOCOMMIT is off there:
            `transaction.atomic` ends without a commit then.
    """
    if alias not in connections:
        raise ConfigurationError(
            f"DATABASE: there is no database {alias!r}; choose one of "
            f"{', '.join(sorted(connections))}."
        )
    if not connections[alias].settings_dict["AUTOCOMMIT"]:
        raise ConfigurationError(
            f"DATABASE: DATABASES[{alias!r}] has AUTOCOMMIT = False, so that Django "
            "commits nothing here: choose an alias of the same database without that."
        )
    return alias
