"""Checks that the transaction of a claim can still be committed."""

from __future__ import annotations

from typing import Final

from django.db.backends.base.base import BaseDatabaseWrapper

from ..exceptions import ErrorSwallowed

_FAILED: Final = "INERROR"
"""libpq's status of a transaction after a failed statement."""


def require_unspoilt(connection: BaseDatabaseWrapper) -> None:
    """
    Raise if a commit would silently roll back.

    After a database error inside the transaction, PostgreSQL can only roll it
    back, even if the error was caught. Django, or else PostgreSQL itself, then
    turns the commit into a rollback without an error.

    Raises:
        ErrorSwallowed: an error was caught, or `set_rollback()` was called.
    """
    driver = connection.connection
    has_failed = driver is not None and driver.info.transaction_status.name == _FAILED
    if connection.needs_rollback or has_failed:
        raise ErrorSwallowed(
            "The transaction cannot be committed: a database error was caught inside "
            "it, or set_rollback() was called. Put statements that may fail into their "
            "own atomic() and catch the error around it, or let the error propagate."
        )
