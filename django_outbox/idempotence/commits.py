"""Whether the transaction of a claim can still be committed."""

from __future__ import annotations

from typing import Final

from django.db.backends.base.base import BaseDatabaseWrapper

from ..exceptions import ErrorSwallowed

_FAILED: Final = "INERROR"
"""libpq's name of a transaction in which a statement has failed."""


def require_unspoilt(connection: BaseDatabaseWrapper) -> None:
    """
    Raise unless what was done since the claim can be committed.

    An error that was caught inside has spoilt the transaction. Django, where it has
    seen the error, and else PostgreSQL answer its commit with a rollback and say
    nothing.

    Raises:
        ErrorSwallowed: there was such an error, or `set_rollback()` was called.
    """
    driver = connection.connection
    has_failed = driver is not None and driver.info.transaction_status.name == _FAILED
    if connection.needs_rollback or has_failed:
        raise ErrorSwallowed(
            "The transaction cannot be committed: a database error was caught inside "
            "it, or set_rollback() was called. Put statements that may fail into their "
            "own atomic() and catch the error around it, or let the error propagate."
        )
