"""
Tells an outage from a failure of a handler.

An outage is waited for and counts as no attempt. A mistake in a handler that was taken
for one would block its partition until the next deployment.
"""

from __future__ import annotations

from typing import Final

from django.db import Error, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..exceptions import ClaimHeld, RegistryUnavailable, TableMissing, sqlstate_of

_UNAVAILABLE: Final = frozenset(
    {
        "25006",  # read-only: the server is not the primary any more
        "53100",  # its disk is full
        "53300",  # it has too many connections
        "57P01",  # it shuts down, or an administrator closed the connection
        "57P02",  # it has crashed
        "57P03",  # it is starting
        "57P05",  # it ended an idle session
    }
)
"""SQLSTATEs of an unavailable server, besides class 08."""

_MAX_CAUSES: Final = 10
"""How many causes of an error are examined."""


def is_service_unavailable(error: BaseException) -> bool:
    """
    Whether an attempt failed for a reason outside of the message.

    A database or the schema registry is unavailable, or another process holds the
    message.

    Looks through causes, since a handler may wrap the database's error; not past
    `raise ... from None`, which says that the earlier error does not matter.
    """
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if isinstance(cause, ClaimHeld | TableMissing | RegistryUnavailable) or (
            isinstance(cause, Error) and _means_unavailable(cause)
        ):
            return True
        cause = cause and _cause_of(cause)
    return False


def _cause_of(error: BaseException) -> BaseException | None:
    """Return what a traceback shows as the cause of an error."""
    if error.__suppress_context__:
        return error.__cause__
    return error.__context__


def _has_lost_connection(error: Error) -> bool:
    """Whether an error that no server has sent comes from a lost connection."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    its = [c for c in connections.all(initialized_only=True) if _is_of(c, error)]
    return not its or any(_is_lost(connection, error) for connection in its)


def _is_of(connection: BaseDatabaseWrapper, error: Error) -> bool:
    """Whether the driver of this connection has raised the error."""
    # Django's stand-in for a database that is not configured has no driver.
    driver = getattr(connection, "Database", None)
    return driver is not None and isinstance(error.__cause__, driver.Error)


def _is_lost(connection: BaseDatabaseWrapper, error: Error) -> bool:
    """Whether an error without a SQLSTATE means that the server is away."""
    if connection.vendor == "postgresql":
        # The other kind is a mistake: a cursor that is closed, for instance.
        return isinstance(error, OperationalError)
    # Other drivers raise the same for a mistake in a statement.
    return connection.connection is None or not connection.is_usable()


def _means_unavailable(error: Error) -> bool:
    state = sqlstate_of(error)
    if state is None:
        return _has_lost_connection(error)
    return state.startswith("08") or state in _UNAVAILABLE
