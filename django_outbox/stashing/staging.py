"""
Into the staged table: messages of a series, and messages with a date.

`stash()` comes here with both. `stashing/series.py` moves a series into the outbox as a
whole, and so does the message that completes it; messages with a date are
moved by the leader (`relay/releaser.py`). Whoever stages, releases or discards
locks the row of the series first and keeps the lock to the end of its
transaction, so that none of them ever sees half of another's work.
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
from .schedule import ScheduleOptions
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
"""A series that refuses keeps its numbers, so that the caller may go on."""

_LOOK: Final = """\
-- outbox: look at series
SELECT id, state, expected, staged, closed_at FROM {series} WHERE name = %s"""

_STAGE: Final = """\
-- outbox: stage
INSERT INTO {staged} ({columns}, series_id, not_before)
VALUES """
_STAGED: Final = """\
({values}, %s::bigint, coalesce(
    %s::timestamptz, statement_timestamp() + %s::interval))"""

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


def stage(
    writer: Writer,
    connection: BaseDatabaseWrapper,
    rows: Sequence[Row],
    terms: ScheduleOptions,
) -> list[uuid.UUID]:
    """
    Write rows that have to wait, and return their ids.

    Their series is released when it is complete.

    Raises:
        SeriesError: The series does not take them; nothing was written.
    """
    if not rows:
        return []
    if terms.series is None:
        return _write(writer, connection, rows, None, terms)
    return join(writer, connection, rows, terms)


def join(
    writer: Writer,
    connection: BaseDatabaseWrapper,
    rows: Sequence[Row],
    terms: ScheduleOptions,
    *,
    on_timeout: str | None = None,
) -> list[uuid.UUID]:
    """
    Count rows into their series, perhaps a new one, write them, return their ids.

    Raises:
        SeriesError: The series does not take them; nothing was written.
    """
    name, count, options = str(terms.series), len(rows), writer.options
    if terms.expected is not None and count > terms.expected:
        _refuse(terms, count, None)
    timeout = options.SERIES_TIMEOUT if terms.timeout is None else terms.timeout
    on_timeout = on_timeout or options.SERIES_ON_TIMEOUT
    values = [name, terms.expected, count, timeout or None, on_timeout]
    with OutboxCursor(connection) as cursor:
        cursor.execute(writer.statement(_JOIN), values)
        row = cursor.fetchone()
    if row is None:
        _refuse(terms, count, look(writer, connection, name))
    series_id, expected, staged = row
    message_ids = _write(writer, connection, rows, series_id, terms)
    if staged == expected:
        release(writer, connection, series_id)
    return message_ids


def look(
    writer: Writer, connection: BaseDatabaseWrapper, name: str, *, lock: bool = False
) -> SeriesRow | None:
    """Read a series; to lock it waits for whoever writes to it or closes it."""
    statement = writer.statement(_LOOK) + (" FOR UPDATE" if lock else "")
    with OutboxCursor(connection) as cursor:
        cursor.execute(statement, [name])
        row = cursor.fetchone()
    return SeriesRow(*row) if row else None


def release(
    writer: Writer, connection: BaseDatabaseWrapper, series_id: int
) -> list[uuid.UUID]:
    """
    Move the messages of a series into the outbox; return their ids.

    The lock of the series must have been taken by an earlier statement: only
    then this one sees all that others have staged.
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
        "closed for good. Give each series a name of its own; send a latecomer "
        "without series=."
    )


def _write(
    writer: Writer,
    connection: BaseDatabaseWrapper,
    rows: Sequence[Row],
    series_id: int | None,
    terms: ScheduleOptions,
) -> list[uuid.UUID]:
    message_ids: list[uuid.UUID] = []
    insert, row = writer.statement(_STAGE), writer.statement(_STAGED)
    with OutboxCursor(connection) as cursor:
        for chunk in chunks(rows):
            ids, values = identified(chunk, series_id, terms.moment, terms.delay)
            cursor.execute(insert + ", ".join([row] * len(chunk)), values)
            message_ids += ids
    return message_ids


def _refuse(terms: ScheduleOptions, count: int, series: SeriesRow | None) -> NoReturn:
    """Say why a series does not take so many messages."""
    name, given = str(terms.series), terms.expected
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
        "give the messages a series of their own."
    )
