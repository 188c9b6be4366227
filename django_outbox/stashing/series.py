"""
Series: messages of several transactions that are sent together.

All calls write inside the caller's transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from ..exceptions import SeriesUnknown
from ..message.limits import Headers, shown
from ..message.outgoing import Message
from ..models.missing_tables import OutboxCursor
from .schedule import SeriesOptions, check_name
from .staging import SeriesRow, closed, join, look, release
from .transaction import Writer, awaited, current_writer, lock_keys

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_KEYS: Final = """\
-- outbox: keys of series
SELECT DISTINCT kafka_topic, kafka_key FROM {staged} WHERE series_id = %s"""

_DISCARD: Final = """\
-- outbox: discard series
WITH gone AS (
    DELETE FROM {staged} WHERE series_id = %(series_id)s RETURNING staged_id
), closed AS (
    UPDATE {series} SET state = 'discarded', closed_at = statement_timestamp()
    WHERE id = %(series_id)s
)
SELECT count(*) FROM gone"""


class OpenSeries:
    """
    An open series, to which messages are added.

    It holds the name and the options of the series and nothing of the transaction:
    it may be used in later transactions, too. As a context manager it only groups
    the calls; leaving the block neither releases nor discards the series.
    """

    def __init__(self, options: SeriesOptions, using: str | None) -> None:
        self._options = options
        self._using = using

    @property
    def name(self) -> str:
        """The name of the series."""
        return self._options.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shown(self.name)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the series open."""

    def stash(
        self,
        topic: str,
        *,
        key: str,
        value: object,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> uuid.UUID:
        """
        Add a message to the series; return its message id.

        The arguments are those of `django_outbox.stash()`.

        Raises:
            NotInTransaction: No `transaction.atomic` block is open.
            InvalidMessage: The message breaks a limit.
            SeriesError: The series does not accept the message.
            TableMissing: `manage.py migrate` has not run there.
        """
        message = Message(
            topic, key=key, value=value, headers=headers, partition=partition
        )
        writer = current_writer()
        connection = writer.connection(self._using)
        row = writer.rows.make(message)
        return join(writer, connection, [row], self._options)[0]

    def stash_many(self, messages: Iterable[Message]) -> list[uuid.UUID]:
        """
        Add messages to the series, in their order; return their message ids.

        If one message is refused, none is added.

        Raises:
            NotInTransaction: No `transaction.atomic` block is open.
            InvalidMessage: A message breaks a limit.
            SeriesError: The series does not accept the messages.
            TableMissing: `manage.py migrate` has not run there.
        """
        writer = current_writer()
        connection = writer.connection(self._using, caller="stash_many")
        rows = list(writer.rows.make_all(messages))
        return join(writer, connection, rows, self._options) if rows else []

    def release(self, *, ordered: bool = False) -> list[uuid.UUID]:
        """Send the series if the transaction commits, as `release_series()` does."""
        return release_series(self.name, ordered=ordered, using=self._using)

    def discard(self) -> int:
        """Delete the messages unsent, as `discard_series()` does."""
        return discard_series(self.name, using=self._using)

    astash = awaited(stash)
    astash_many = awaited(stash_many)
    arelease = awaited(release)
    adiscard = awaited(discard)


def open_series(
    name: str,
    *,
    expected: int | None = None,
    timeout: float | None = None,
    on_timeout: Literal["park", "discard"] | None = None,
    using: str | None = None,
) -> OpenSeries:
    """
    Open a series, or join one that is open; return the handle that adds messages.

    The call that creates the series decides on `timeout` and `on_timeout`; later
    calls cannot change them. The first `expected` counts, whichever call has it.

    Args:
        name: The name of the series, unique in the database.
        expected: Number of messages; the last one releases the series.
        timeout: Seconds from now until the series expires; the setting
            SERIES_TIMEOUT by default, 0 for no time-out.
        on_timeout: What happens to the messages of an expired series; the setting
            SERIES_ON_TIMEOUT by default.
        using: Alias of the database, as in `stash()`.

    Raises:
        NotInTransaction: No `transaction.atomic` block is open there.
        InvalidMessage: An argument is wrong.
        SeriesClosed: The series was released, was discarded or has expired.
        SeriesError: The series expects another number of messages.
        TableMissing: `manage.py migrate` has not run there.
    """
    writer = current_writer()
    connection = writer.connection(using, caller="open_series")
    options = SeriesOptions(name, expected, timeout, on_timeout)
    options.check()
    join(writer, connection, [], options)
    return OpenSeries(options, using)


def release_series(
    name: str, *, ordered: bool = False, using: str | None = None
) -> list[uuid.UUID]:
    """
    Move a whole series into the outbox; it is sent if the transaction commits.

    The messages get their ids now, in the order in which they were staged, by
    one statement, and keep their message ids. A series can be released before it
    has the expected number of messages.

    Args:
        name: The series.
        ordered: As in `stash()`, for all keys of the series.
        using: Alias of the database, as in `stash()`.

    Returns:
        The message ids, in their order.

    Raises:
        NotInTransaction: No `transaction.atomic` block is open there.
        InvalidMessage: The name is not a text of 1 to 255 characters.
        SeriesUnknown: There is no such series.
        SeriesClosed: It was released, was discarded or has expired.
        TableMissing: `manage.py migrate` has not run there.
    """
    writer = current_writer()
    connection = writer.connection(using, caller="release_series")
    series = _locked(writer, connection, name)
    if ordered:
        with OutboxCursor(connection) as cursor:
            cursor.execute(writer.statement(_KEYS), [series.id])
            keys = cursor.fetchall()
        lock_keys(connection, keys)
    return release(writer, connection, series.id)


def discard_series(name: str, *, using: str | None = None) -> int:
    """
    Delete a series' messages unsent; return how many there were.

    Raises:
        NotInTransaction: No `transaction.atomic` block is open there.
        InvalidMessage: The name is not a text of 1 to 255 characters.
        SeriesUnknown: There is no such series.
        SeriesClosed: It was released, was discarded or has expired.
        TableMissing: `manage.py migrate` has not run there.
    """
    writer = current_writer()
    connection = writer.connection(using, caller="discard_series")
    series = _locked(writer, connection, name)
    with OutboxCursor(connection) as cursor:
        cursor.execute(writer.statement(_DISCARD), {"series_id": series.id})
        return int(cursor.fetchone()[0])


def _locked(writer: Writer, connection: BaseDatabaseWrapper, name: str) -> SeriesRow:
    """Lock an open series for the rest of the transaction."""
    check_name(name)
    series = look(writer, connection, name, lock=True)
    if series is None:
        raise SeriesUnknown(
            f"series: there is no {shown(name)} in the database {connection.alias!r}. "
            "Correct the name; open_series() creates one."
        )
    if series.state != "open":
        raise closed(name, series)
    return series


aopen_series = awaited(open_series)
arelease_series = awaited(release_series)
adiscard_series = awaited(discard_series)
