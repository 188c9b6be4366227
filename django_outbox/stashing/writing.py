"""
Writing messages inside the caller's transaction.

The harvester sees a message when the transaction commits, and never if it rolls
back. Nothing here touches Kafka, so that it is safe before and after a fork.
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

from ..exceptions import InvalidMessage
from ..message.limits import Headers
from ..message.outgoing import Message, Row
from ..models.missing_tables import OutboxCursor
from .schedule import Delay
from .staging import delay
from .transaction import (
    VALUES,
    Writer,
    awaited,
    chunks,
    current_writer,
    identified,
    lock_keys,
)

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_INSERT: Final = """\
-- outbox: stash
INSERT INTO {outbox} ({columns})
VALUES ({values})"""

_STASH: Final = _INSERT + "{returning}"
"""With NOTIFY each row notifies; PostgreSQL sends one notification a transaction."""

_NOTIFY: Final = """\
-- outbox: notify
SELECT {notify}"""
"""After a COPY, which returns nothing."""

_COPY: Final = """\
-- outbox: stash
COPY {outbox} ({columns}) FROM STDIN"""

MIN_COPY_ROWS: Final = 10
"""From this number of rows on, COPY is faster than one INSERT."""

_encode = DjangoJSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode


def to_json(value: Any) -> str:
    """Turn a value into compact JSON, with Django's encoder (dates, decimals, …)."""
    return _encode(value)


def stash(
    topic: str,
    *,
    key: str,
    value: object,
    headers: Headers | None = None,
    partition: int | None = None,
    using: str | None = None,
    ordered: bool = False,
) -> uuid.UUID:
    """
    Write a message to the outbox; it is sent if the transaction commits.

    Args:
        topic: The Kafka topic.
        key: Messages of one topic and key are sent in their order.
        value: Text, bytes, None for a tombstone, or anything that the
            serializer (setting SERIALIZER) turns into text or bytes. It has no default:
            on a compacted topic a tombstone deletes what was sent before.
        headers: A mapping, or (name, value) pairs, of text.
        partition: Send the message to this partition, whatever its key.
        using: Alias of the database of the open transaction; by default the
            setting DATABASE, else the answer of the routers.
        ordered: Let transactions that write this key wait for each other, so
            that their messages are sent in the order of their commits.

    Returns:
        The message id, which consumers see in the header outbox-message-id.

    Raises:
        NotInTransaction: No `transaction.atomic` block is open there.
        InvalidMessage: The message breaks a limit.
        TableMissing: `manage.py migrate` has not run there.
    """
    return stash_message(
        Message(topic, key=key, value=value, headers=headers, partition=partition),
        using=using,
        ordered=ordered,
    )


def stash_message(
    message: Message, *, using: str | None, ordered: bool = False
) -> uuid.UUID:
    """Write one message as `stash()` does, which has the arguments and the errors."""
    writer = current_writer()
    connection = writer.connection(using)
    row = writer.rows.make(message)
    if ordered:
        # Of the row: a middleware may have given it another key.
        lock_keys(connection, [(row.topic, row.key)])
    (message_id,), values = identified([row])
    with OutboxCursor(connection) as cursor:
        cursor.execute(writer.statement(_STASH), values)
    return message_id


def stash_delayed(
    topic: str,
    *,
    key: str,
    value: object,
    not_before: datetime | timedelta,
    headers: Headers | None = None,
    partition: int | None = None,
    using: str | None = None,
) -> uuid.UUID:
    """
    Write a message that is sent later, if the transaction commits.

    Args:
        topic: As in `stash()`, like all other arguments and errors.
        key: The message has no order among the messages of its key.
        value: See `stash()`.
        not_before: When to send it: a datetime with a time zone, or the time
            from now by the database's clock.
        headers: See `stash()`.
        partition: See `stash()`.
        using: See `stash()`.

    Returns:
        The message id.
    """
    writer = current_writer()
    connection = writer.connection(using, caller="stash_delayed")
    row = writer.rows.make(
        Message(topic, key=key, value=value, headers=headers, partition=partition)
    )
    return delay(writer, connection, [row], Delay.until(not_before))[0]


def stash_many(
    messages: Iterable[Message],
    *,
    using: str | None = None,
    ordered: bool = False,
    not_before: datetime | timedelta | None = None,
) -> list[uuid.UUID]:
    """
    Write messages in their order, many in one statement; return their ids.

    If one message is refused, none is written; the error names its position, from 0.

    Args:
        messages: The messages, in the order in which they are to be sent.
        using: Alias of the database, as in `stash()`.
        ordered: As in `stash()`. All messages are checked, and the locks of all
            keys are taken, before the first message is written.
        not_before: As in `stash_delayed()`, for all messages; excludes `ordered`.

    Raises:
        NotInTransaction: No `transaction.atomic` block is open there.
        InvalidMessage: A message breaks a limit.
        TableMissing: `manage.py migrate` has not run there.
    """
    writer = current_writer()
    connection = writer.connection(using, caller="stash_many")
    rows: Iterable[Row] = writer.rows.make_all(messages)
    if not_before is not None:
        if ordered:
            raise InvalidMessage(
                "ordered: a delayed message gets its place when it is due, so there "
                "is nothing to order yet. Leave it out."
            )
        return delay(writer, connection, list(rows), Delay.until(not_before))
    if ordered:
        rows = list(rows)
        lock_keys(connection, {(row.topic, row.key) for row in rows})
    return write_rows(writer, connection, rows)


def write_rows(
    writer: Writer, connection: BaseDatabaseWrapper, rows: Iterable[Row]
) -> list[uuid.UUID]:
    """Write rows in their order, all or none; return the message ids."""
    message_ids: list[uuid.UUID] = []
    split = chunks(rows)
    # A single statement is atomic by itself and needs no savepoint.
    head = list(islice(split, 2))
    guard: AbstractContextManager[object] = (
        nullcontext() if len(head) < 2 else transaction.atomic(connection.alias)
    )
    with guard, OutboxCursor(connection) as cursor:
        for chunk in chain(head, split):
            if len(chunk) < MIN_COPY_ROWS:
                insert = writer.statement(_INSERT) + f", ({VALUES})" * (len(chunk) - 1)
                ids, values = identified(chunk)
                cursor.execute(insert + writer.returning, values)
            else:
                ids = _copy(connection, cursor, writer.statement(_COPY), chunk)
            message_ids += ids
        if writer.returning and len(message_ids) >= MIN_COPY_ROWS:
            cursor.execute(writer.statement(_NOTIFY))
    return message_ids


def _copy(
    connection: BaseDatabaseWrapper, cursor: Any, statement: str, rows: Iterable[Row]
) -> list[uuid.UUID]:
    """
    Write rows that were checked, and return their ids.

    The rows must be complete before the COPY starts: an error during the COPY ends
    the transaction, and a generator of messages may use the same connection. Work
    that cannot fail is done here, while the server is busy.
    """
    message_ids: list[uuid.UUID] = []
    # As Django does before each statement of its own.
    connection.validate_no_broken_transaction()
    with connection.wrap_database_errors, cursor.copy(statement) as copy:
        for topic, key, text, raw, names, values, partition in rows:
            message_id = uuid.uuid4()
            headers = _text_array(names), _text_array(values)
            copy.write_row((topic, key, text, raw, *headers, partition, message_id))
            message_ids.append(message_id)
    return message_ids


def _text_array(texts: Iterable[str]) -> str:
    """
    Write texts as PostgreSQL writes an array of them.

    The driver inspects each element of a list, a quarter of `stash_many()`'s time.
    """
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    return '{"' + '","'.join(quoted) + '"}' if quoted else "{}"


astash = awaited(stash)
astash_delayed = awaited(stash_delayed)
astash_many = awaited(stash_many)
