"""
Writing to the staged table: messages of a series, and delayed messages.

A transaction that writes to a series, releases it or discards it locks the row of
the series first, and keeps the lock until it ends. So no transaction sees a part of
what another one does to the series.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from ..exceptions import SeriesClosed, SeriesError
from ..message.limits import shown
from ..message.outgoing import Row
from ..models.missing_tables import OutboxCursor
from .schedule import Delay, SeriesOptions
from .transaction import Writer, chunks, identified

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_JOIN: Final = """\
-- outbox: join series
INSERT INTO {series} AS s (name, expected, staged, expires_at, on_timeout)
VALUES (%s, %s::integer, %s,
    statement_timestamp() + make_interval(secs => %s::float8), %s)
ON CONFLICT (name) DO UPDATE SET
    expected = coalesce(s.expected, excluded.expected),
    staged = s.staged + excluded.staged
WHERE s.state = 'open'
    AND coalesce(excluded.expected = s.expected, true)
    AND s.staged + excluded.staged
        <= coalesce(s.expected, excluded.expected, 2147483647)
RETURNING s.id, s.expected, s.staged"""
"""A series that refuses messages is not changed, so that the caller can continue."""

_READ_SERIES: Final = """\
-- outbox: look at series
SELECT id, state, expected, staged, closed_at FROM {series} WHERE name = %s"""

_STAGE: Final = """\
-- outbox: stage
INSERT INTO {staged} ({columns}, series_id, not_before)
VALUES """
_STAGED: Final = """\
({values}, %s::bigint, coalesce(
    %s::timestamptz, statement_timestamp() + make_interval(secs => %s::float8)))"""
"""A delay is in seconds: a day of an interval lasts 23 or 25 hours where the session's
time zone changes its clocks."""

_RELEASE: Final = """\
-- outbox: release series
WITH moved AS (
    DELETE FROM {staged} WHERE series_id = %(series_id)s
    RETURNING staged_id, {columns}
), closed AS (
    UPDATE {series} SET state = 'released', closed_at = statement_timestamp()
    WHERE id = %(series_id)s
), sent AS (
    INSERT INTO {outbox} ({columns})
    SELECT {columns} FROM moved ORDER BY staged_id{returning}
)
SELECT message_id FROM moved ORDER BY staged_id"""
"""A new row's create_time is the moment of the release."""


class SeriesRow(NamedTuple):
    """The row of a series, in the order of the statement "look at series"."""

    id: int
    state: str
    expected: int | None
    staged: int
    closed_at: datetime | None


def delay(
    writer: Writer, connection: BaseDatabaseWrapper, rows: Sequence[Row], until: Delay
) -> list[uuid.UUID]:
    """Write messages that are sent later; return their ids."""
    interval = until.interval
    seconds = None if interval is None else interval.total_seconds()
    return _write(writer, connection, rows, (None, until.moment, seconds))


def join(
    writer: Writer,
    connection: BaseDatabaseWrapper,
    rows: Sequence[Row],
    series: SeriesOptions,
) -> list[uuid.UUID]:
    """
    Add messages to a series, and open it if it does not exist; return their ids.

    The message that completes the series releases it.

    Raises:
        SeriesError: The series does not accept them; nothing was written.
    """
    count, settings = len(rows), writer.options
    if series.expected is not None and count > series.expected:
        _refuse(series, count, None)
    timeout = settings.SERIES_TIMEOUT if series.timeout is None else series.timeout
    on_timeout = series.on_timeout or settings.SERIES_ON_TIMEOUT
    values = [series.name, series.expected, count, timeout or None, on_timeout]
    with OutboxCursor(connection) as cursor:
        cursor.execute(writer.statement(_JOIN), values)
        row = cursor.fetchone()
    if row is None:
        _refuse(series, count, look(writer, connection, series.name))
    series_id, expected, staged = row
    message_ids = _write(writer, connection, rows, (series_id, None, None))
    if staged == expected:
        release(writer, connection, series_id)
    return message_ids


def look(
    writer: Writer, connection: BaseDatabaseWrapper, name: str, *, lock: bool = False
) -> SeriesRow | None:
    """Read a series; `lock=True` waits for its other writers."""
    statement = writer.statement(_READ_SERIES) + (" FOR UPDATE" if lock else "")
    with OutboxCursor(connection) as cursor:
        cursor.execute(statement, [name])
        row = cursor.fetchone()
    return SeriesRow(*row) if row else None


def release(
    writer: Writer, connection: BaseDatabaseWrapper, series_id: int
) -> list[uuid.UUID]:
    """
    Move the messages of a series into the outbox; return their ids.

    An earlier statement must have locked the series: only then does this statement
    see all messages that other transactions have staged.
    """
    with OutboxCursor(connection) as cursor:
        cursor.execute(writer.statement(_RELEASE), {"series_id": series_id})
        return [message_id for (message_id,) in cursor.fetchall()]


def closed(name: str, series: SeriesRow) -> SeriesClosed:
    """Say how a series ended."""
    when = f" at {series.closed_at.isoformat()}" if series.closed_at else ""
    ended = {"released": "was released", "discarded": "was discarded"}
    return SeriesClosed(
        f"series: {shown(name)} {ended.get(series.state, 'has expired')}{when} and is "
        "closed. Use a new name for each series; send a late message with stash()."
    )


def _write(
    writer: Writer,
    connection: BaseDatabaseWrapper,
    rows: Sequence[Row],
    wait: tuple[int | None, datetime | None, float | None],
) -> list[uuid.UUID]:
    """Insert rows that wait for a series (its id), a moment, or some seconds."""
    message_ids: list[uuid.UUID] = []
    insert, row = writer.statement(_STAGE), writer.statement(_STAGED)
    with OutboxCursor(connection) as cursor:
        for chunk in chunks(rows):
            ids, values = identified(chunk, *wait)
            cursor.execute(insert + ", ".join([row] * len(chunk)), values)
            message_ids += ids
    return message_ids


def _refuse(options: SeriesOptions, count: int, series: SeriesRow | None) -> NoReturn:
    """Say why a series does not accept so many messages."""
    name, given = options.name, options.expected
    if series is not None and series.state != "open":
        raise closed(name, series)
    expected = None if series is None else series.expected
    if expected is not None and given is not None and expected != given:
        raise SeriesError(
            f"expected: {given}, but the series {shown(name)} expects {expected} "
            "messages. Pass the same number, or leave it out."
        )
    staged = 0 if series is None else series.staged
    more = f" and would get {count} more" if count else " already"
    raise SeriesError(
        f"expected: {given if expected is None else expected} messages complete the "
        f"series {shown(name)}, and it has {staged}{more}. Correct the number, or "
        "use another series for these messages."
    )
