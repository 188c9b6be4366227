"""
The error for a missing table of the outbox: it says to run `migrate`.

PostgreSQL only says `relation "outbox" does not exist`. The transaction can only roll
back then, as after every error of the database.
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from django.db import ProgrammingError

from ..conf import settings
from ..exceptions import TableMissing, sqlstate_of
from ..wording import first_line

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_MISSING: Final = frozenset({"42P01", "42703"})
"""SQLSTATEs of a missing table and of a missing column."""


class OutboxTables:
    """
    A block whose statements need the outbox's tables in one database.

    Raises:
        TableMissing: instead of Django's error, when one of the tables is missing
            or of another version.
    """

    __slots__ = ("_alias",)

    def __init__(self, alias: str) -> None:
        self._alias = alias

    def __enter__(self) -> None:
        """Do nothing: this runs for each message."""

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(exc, ProgrammingError) and _is_of_ours(exc):
            raise TableMissing(_text(exc, self._alias)) from exc


class OutboxCursor(OutboxTables):
    """A cursor for statements on the outbox's tables."""

    __slots__ = ("_cursor",)

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection.alias)
        self._cursor: Any = connection.cursor()

    def __enter__(self) -> Any:
        return self._cursor.__enter__()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cursor.__exit__(exc_type, exc, traceback)
        super().__exit__(exc_type, exc, traceback)


def _is_of_ours(error: ProgrammingError) -> bool:
    """Whether the error names a table of the outbox and not of the application."""
    if sqlstate_of(error) not in _MISSING:
        return False
    table = re.escape(settings.TABLE)
    others = "staged|series|pauses|parked|archive|processed|offsets|identity"
    ours = rf"(?<!\w){table}(_({others}))?(?!\w)"
    return re.search(ours, first_line(error)) is not None


def _text(error: ProgrammingError, alias: str) -> str:
    return (
        f"In the database {alias!r}: {first_line(error)}. Run `manage.py migrate "
        f"--database={alias}`. If that has been done, correct the alias (using=, the "
        "setting DATABASE, your routers), the setting TABLE or the search_path."
    )
