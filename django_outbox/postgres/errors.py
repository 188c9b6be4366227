"""
Translates the driver's errors: unavailable, busy, or a mistake with a hint.

No text of an error contains a value of a row.
"""

from __future__ import annotations

from typing import Final

import psycopg

from ..exceptions import (
    DatabaseBusy,
    DatabaseError,
    DatabaseReadOnly,
    DatabaseSlow,
    DatabaseUnavailable,
    OutOfResources,
    RowInvalid,
    says_no_files,
)

_READ_ONLY: Final = "25006"
"""A primary has become a standby: a failover is in progress."""

_CORRUPTED: Final = "XX"
"""Class of errors that data in the server's files cause, or values of extreme size."""

_LOCKED: Final = frozenset({"40P01", "55P03"})
"""A deadlock, and a lock that was not acquired within `lock_timeout`."""

_CANCELED: Final = "57014"
"""The statement time-out; with a context, it waited for the lock of a row."""

_NO_MEMORY: Final = (
    "cannot allocate memory for input buffer",
    "cannot allocate memory for output buffer",
    "out of memory for query result",
)
"""What libpq says when this process, not the server, gets no more memory."""

_HINTS: Final = {
    "3F000": "Run `manage.py migrate`, or correct the name in TABLE.",
    "42501": "GRANT this role what `manage.py outbox grants --harvester ROLE` prints: "
    "SELECT, UPDATE and DELETE on the outbox table, INSERT on its parked and archive "
    "tables, SELECT on its identity, and what it needs for staged messages.",
    "42703": "Run `manage.py migrate`: the table is of another version.",
    "42P01": "Run `manage.py migrate`, correct the name in TABLE, or GRANT this role "
    "USAGE on the schema.",
}
"""What to do about an error that a retry does not solve, by its SQLSTATE."""


def translated(error: psycopg.Error) -> DatabaseError:
    """
    Turn a driver's error into ours, without the values of any row.

    Raises:
        OutOfResources: this process gets no more memory or files.
    """
    text = str(error).strip()
    # With FATAL, the server reports that it has no more files itself.
    has_no_files = says_no_files(text) and "FATAL:" not in text
    is_exhausted = text in _NO_MEMORY or has_no_files
    if error.sqlstate is None and is_exhausted:
        raise OutOfResources(
            f"The system gives this process no more memory or files: {text}."
        )
    waited_for_row = error.sqlstate == _CANCELED and error.diag.context
    if waited_for_row or error.sqlstate in _LOCKED:
        return DatabaseBusy(_text(error))
    if error.sqlstate == _CANCELED:
        return DatabaseSlow(_text(error))
    is_away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if error.sqlstate == _READ_ONLY:
        return DatabaseReadOnly(_text(error))
    if is_away:
        return DatabaseUnavailable(_text(error))
    if isinstance(error, psycopg.DataError) or (error.sqlstate or "")[:2] == _CORRUPTED:
        return RowInvalid(_text(error))
    hint = _HINTS.get(error.sqlstate or "", "")
    return DatabaseError(f"{_text(error)} {hint}".strip())


def _text(error: psycopg.Error) -> str:
    if isinstance(error, psycopg.DataError):
        text = "a value does not fit its column"
    else:
        text = error.diag.message_primary or " ".join(str(error).split())
    state = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
    return f"Postgres: {text}{state}."
