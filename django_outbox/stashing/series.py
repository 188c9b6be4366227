"""
Opening, releasing and discarding series, inside the caller's transaction.

`stash(..., series=...)` fills them (`stashing/staging.py`); the leader closes those
whose time is up. docs/howto/series.md shows the use, docs/concepts/writing.md
says which order is promised.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, Literal

from ..exceptions import InvalidMessage, SeriesUnknown
from ..message.limits import shown
from ..models.missing_tables import OutboxCursor
from .schedule import ScheduleOptions, check_name
from .staging import SeriesRow, closed, join, look, release
from .transaction import Writer, current_writer, lock_lanes

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_LANES: Final = """\
-- outbox: lanes of series
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


def open_series(
    name: str,
    *,
    expected: int | None = None,
    timeout: float | None = None,
    on_timeout: Literal["park", "discard"] | None = None,
    using: str | None = None,
) -> None:
    """
    Open a series before its first message, to say what becomes of it.

    `stash(..., series=name)` opens a series by itself. On a series that is
    open this changes nothing, but that `expected` counts if nobody has said
    how many are.

    Args:
        name: The name that `stash()` gets.
        expected: The number of messages that releases it.
        timeout: Seconds from now in which it has to be released; the setting
            SERIES_TIMEOUT by default, 0 for ever.
        on_timeout: What becomes of its messages then; what the setting
            SERIES_ON_TIMEOUT says by default.
        using: Alias of the database, as in `stash()`.

    Raises:
        NotInTransaction: No `transaction.atomic` block is open there.
        SeriesError: It is closed, or expects another number of messages.
    """
    writer = current_writer()
    connection = writer.connection(using, caller="open_series")
    check_name(name)
    if on_timeout not in {None, "park", "discard"}:
        raise InvalidMessage(f"on_timeout: {on_timeout!r} must be 'park' or 'discard'.")
    terms = ScheduleOptions.of(name, expected, timeout, None)
    assert terms is not None, "a name makes terms"
    join(writer, connection, [], terms, on_timeout=on_timeout)


def release_series(
    name: str, *, ordered: bool = False, using: str | None = None
) -> list[uuid.UUID]:
    """
    Move a whole series into the outbox; it is sent if the transaction commits.

    Its messages get their ids now, in the order in which they were staged, by
    one statement, and keep their message ids. An `expected` that is not
    reached is no obstacle.

    Args:
        name: The series.
        ordered: As in `stash()`, for all keys of the series.
        using: Alias of the database, as in `stash()`.

    Returns:
        The message ids, in their order.

    Raises:
        NotInTransaction: No `transaction.atomic` block is open there.
        SeriesUnknown: There is no such series.
        SeriesClosed: It was released, was discarded or has expired.
    """
    writer = current_writer()
    connection = writer.connection(using, caller="release_series")
    series = _locked(writer, connection, name)
    if ordered:
        with OutboxCursor(connection) as cursor:
            cursor.execute(writer.statement(_LANES), [series.id])
            lanes = cursor.fetchall()
        lock_lanes(connection, lanes)
    return release(writer, connection, series.id)


def discard_series(name: str, *, using: str | None = None) -> int:
    """
    Delete a series' messages unsent; return how many there were.

    Raises:
        NotInTransaction: No `transaction.atomic` block is open there.
        SeriesUnknown: There is no such series.
        SeriesClosed: It was released, was discarded or has expired.
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
            "Correct the name; stash(..., series=...) opens one."
        )
    if series.state != "open":
        raise closed(name, series)
    return series
