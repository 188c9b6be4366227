"""
Into the table: `stash()` writes a message inside the caller's transaction.

The message becomes visible to the harvester when that transaction commits,
and never when it rolls back. Nothing here touches Kafka, so that it is safe
before and after a fork. `message/outgoing.py` makes the row before it is written; a
message that has to wait goes to `stashing/staging.py`. docs/concepts/writing.md says
which order which call promises.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction

from ..message.limits import Headers
from ..message.outgoing import Message, Row
from ..models.missing_tables import OutboxCursor
from .schedule import ScheduleOptions
from .staging import stage
from .transaction import (
    VALUES,
    chunks,
    current_writer,
    identified,
    lock_lanes,
    text_array,
)

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_INSERT: Final = """\
-- outbox: stash
INSERT INTO {outbox} ({columns})
VALUES ({values})"""

_STASH: Final = _INSERT + "{returning}"
"""With NOTIFY each row tells; PostgreSQL keeps one of a transaction's equal ones."""

_NOTIFY: Final = """\
-- outbox: notify
SELECT {notify}"""
"""After a COPY, which returns nothing."""

_COPY: Final = """\
-- outbox: stash
COPY {outbox} ({columns}) FROM STDIN"""

COPIED: Final = 10
"""Rows from which on COPY is quicker than one INSERT of them all."""

_encode = DjangoJSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode


def to_json(value: Any) -> str:
    """Turn a value into compact JSON, with Django's encoder (dates, decimals, …)."""
    return _encode(value)


def stash(  # noqa: PLR0913  # each names one property of a message
    topic: str,
    *,
    key: str,
    value: object,
    headers: Headers | None = None,
    partition: int | None = None,
    using: str | None = None,
    ordered: bool = False,
    series: str | None = None,
    expected: int | None = None,
    timeout: float | None = None,
    not_before: datetime | timedelta | None = None,
) -> uuid.UUID:
    """
    Write a message to the outbox; it is sent if the transaction commits.

    Args:
        topic: The Kafka topic.
        key: Messages of one topic and key are sent one after the other.
        value: Text, bytes, None for a tombstone, or anything that the
            serializer (setting SERIALIZER) turns into text. It has no default:
            on a compacted topic a tombstone deletes what was sent before.
        headers: A mapping, or (name, value) pairs, of text.
        partition: Send there and not where the key belongs.
        using: Alias of the database of the open transaction; by default the
            setting DATABASE, else what the routers say.
        ordered: Let transactions that write this key wait for each other, so
            that their messages are sent in the order of their commits.
        series: Stage the message until `release_series()` sends the series of
            this name as a whole.
        expected: Release the series with the message that makes so many.
        timeout: Seconds after its first message in which the series has to be
            released; the setting SERIES_TIMEOUT by default, 0 for ever. The
            call that opens the series decides.
        not_before: Stage the message until then: a datetime with a time zone,
            or how long from now by the database's clock.

    Returns:
        The message id, which consumers see in the header outbox-message-id.

    Raises:
        NotInTransaction: No `transaction.atomic` block is open there.
        InvalidMessage: The message breaks a limit.
        SeriesError: The series does not take it.
        TableMissing: `manage.py migrate` has not run there.
    """
    writer = current_writer()
    connection = writer.connection(using)
    row = writer.rows.make(
        Message(topic, key=key, value=value, headers=headers, partition=partition)
    )
    terms = ScheduleOptions.of(series, expected, timeout, not_before, ordered=ordered)
    if terms:
        return stage(writer, connection, [row], terms)[0]
    if ordered:
        lock_lanes(connection, [(topic, key)])
    (message_id,), values = identified([row])
    with OutboxCursor(connection) as cursor:
        cursor.execute(writer.statement(_STASH), values)
    return message_id


def stash_many(
    messages: Iterable[Message],
    *,
    using: str | None = None,
    ordered: bool = False,
    series: str | None = None,
    expected: int | None = None,
    timeout: float | None = None,
    not_before: datetime | timedelta | None = None,
) -> list[uuid.UUID]:
    """
    Write messages in their order, many in one statement; return their ids.

    When one cannot be written, none is. `ordered=True` checks all messages
    and takes the locks of all keys before it writes the first. The other
    arguments are those of `stash()`, for all of the messages, and so are the errors;
    of a message that is refused they name the position, from 0.
    """
    writer = current_writer()
    connection = writer.connection(using, caller="stash_many")
    rows: Iterable[Row] = writer.rows.make_all(messages)
    terms = ScheduleOptions.of(series, expected, timeout, not_before, ordered=ordered)
    if terms:
        return stage(writer, connection, list(rows), terms)
    if ordered:
        rows = list(rows)
        lock_lanes(connection, {(row.topic, row.key) for row in rows})
    message_ids: list[uuid.UUID] = []
    split = chunks(rows)
    # A single statement is atomic by itself and needs no savepoint.
    head = list(islice(split, 2))
    guard: AbstractContextManager[object] = (
        nullcontext() if len(head) < 2 else transaction.atomic(connection.alias)
    )
    with guard, OutboxCursor(connection) as cursor:
        for chunk in chain(head, split):
            if len(chunk) < COPIED:
                insert = writer.statement(_INSERT) + f", ({VALUES})" * (len(chunk) - 1)
                ids, values = identified(chunk)
                cursor.execute(insert + writer.returning, values)
            else:
                ids = _copy(connection, cursor, writer.statement(_COPY), chunk)
            message_ids += ids
        if writer.returning and len(message_ids) >= COPIED:
            cursor.execute(writer.statement(_NOTIFY))
    return message_ids


def _copy(
    connection: BaseDatabaseWrapper, cursor: Any, statement: str, rows: Iterable[Row]
) -> list[uuid.UUID]:
    """
    Write rows that were checked, and return their ids.

    An error on the way would end the transaction, and whoever makes the messages may
    ask the same connection meanwhile. What cannot fail is done here, while the
    server is at work, too.
    """
    message_ids: list[uuid.UUID] = []
    with connection.wrap_database_errors, cursor.copy(statement) as copy:
        for topic, key, text, raw, names, values, partition in rows:
            message_id = uuid.uuid4()
            headers = text_array(names), text_array(values)
            copy.write_row((topic, key, text, raw, *headers, partition, message_id))
            message_ids.append(message_id)
    return message_ids
