"""
Into the table: `stash()` writes a message inside the caller's transaction.

The message becomes visible to the harvester when that transaction commits,
and never when it rolls back. Nothing here touches Kafka, so that it is safe
before and after a fork. `messages.py` makes the row before it is written;
docs/concepts/writing.md says which order which call promises.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from asgiref.sync import sync_to_async
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, router, transaction
from django.utils.module_loading import import_string

from .conf import settings
from .exceptions import NotInTransaction
from .limits import Headers
from .messages import Message, Row, Rows
from .options import OutboxSettings
from .records import Lane

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

CHUNK_ROWS: Final = 1_000
"""Rows of one INSERT: well under PostgreSQL's 65,535 parameters."""
CHUNK_BYTES: Final = 4_000_000
"""Bytes (or characters) of values in one INSERT, unless one value is larger."""

_INSERT: Final = """\
-- outbox: stash
INSERT INTO {table} (kafka_topic, kafka_key, kafka_value, kafka_value_bytes,
    kafka_header_keys, kafka_header_values, message_id, kafka_partition, cluster_id)
VALUES """
_ROW: Final = "(%s, %s, %s, %s, %s::text[], %s::text[], %s, %s, %s)"
_LOCK: Final = """\
-- outbox: order
SELECT pg_advisory_xact_lock(hashtextextended(key, hashtextextended(topic, 0)))
FROM unnest(%s::text[], %s::text[]) AS lane(topic, key)"""

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
    value: object = None,
    headers: Headers | None = None,
    partition: int | None = None,
    using: str | None = None,
    ordered: bool = False,
) -> uuid.UUID:
    """
    Write a message to the outbox; it is sent if the transaction commits.

    Args:
        topic: The Kafka topic.
        key: Messages of one topic and key are sent one after the other.
        value: Text, bytes, None for a tombstone, or anything that the
            serializer (setting SERIALIZER) turns into text.
        headers: A mapping, or (name, value) pairs, of text.
        partition: Send there and not where the key belongs.
        using: Alias of the database of the open transaction; by default the
            setting DATABASE, else what the routers say.
        ordered: Let transactions that write this key wait for each other, so
            that their messages are sent in the order of their commits.

    Returns:
        The message id, which consumers see in the header outbox-message-id.

    Raises:
        NotInTransaction: No `transaction.atomic` block is open there.
        InvalidMessage: The message breaks a limit.
    """
    writer = _writer()
    connection = writer.connection(using)
    row = writer.rows.make(
        Message(topic, key=key, value=value, headers=headers, partition=partition)
    )
    if ordered:
        _lock(connection, [(topic, key)])
    with connection.cursor() as cursor:
        cursor.execute(writer.statement, row)
    return row.message_id


def stash_many(
    messages: Iterable[Message], *, using: str | None = None, ordered: bool = False
) -> list[uuid.UUID]:
    """
    Write messages in their order, many in one statement; return their ids.

    When one cannot be written, none is. `ordered=True` checks all messages
    and takes the locks of all keys before it writes the first.
    """
    writer = _writer()
    connection = writer.connection(using)
    rows: Iterable[Row] = map(writer.rows.make, messages)
    if ordered:
        rows = list(rows)
        # Sorted, so that two batches cannot wait for each other.
        _lock(connection, sorted({(row.topic, row.key) for row in rows}))
    chunks = _chunks(rows)
    message_ids: list[uuid.UUID] = []
    # A single statement is atomic by itself and needs no savepoint.
    head = list(islice(chunks, 2))
    guard: AbstractContextManager[object] = (
        nullcontext() if len(head) < 2 else transaction.atomic(connection.alias)
    )
    with guard, connection.cursor() as cursor:
        for chunk in chain(head, chunks):
            statement = writer.statement + f", {_ROW}" * (len(chunk) - 1)
            cursor.execute(statement, [column for row in chunk for column in row])
            message_ids += [row.message_id for row in chunk]
    return message_ids


async def astash(
    topic: str,
    *,
    key: str,
    value: object = None,
    headers: Headers | None = None,
    partition: int | None = None,
    using: str | None = None,
    ordered: bool = False,
) -> uuid.UUID:
    """
    Do what `stash()` does, from async code.

    It runs on the thread of Django's own async calls, so that it is in the
    transaction that was opened there.
    """
    return await sync_to_async(stash, thread_sensitive=True)(
        topic,
        key=key,
        value=value,
        headers=headers,
        partition=partition,
        using=using,
        ordered=ordered,
    )


class _Writer:
    """What the settings say about writing, worked out once."""

    def __init__(self, options: OutboxSettings) -> None:
        # Defer the import: models cannot load before the app registry.
        from .models import OutboxRecord

        self.options = options
        self._model = OutboxRecord
        self.rows = Rows(options, import_string(options.SERIALIZER))
        table = OutboxRecord._meta.db_table
        self.statement = _INSERT.format(table=f'"{table}"') + _ROW

    def connection(self, using: str | None) -> BaseDatabaseWrapper:
        """Return the caller's own connection, which must be in a transaction."""
        alias = using or self.options.DATABASE or router.db_for_write(self._model)
        connection = connections[alias]
        if not connection.in_atomic_block:
            raise NotInTransaction(_not_in_transaction(alias))
        return connection


_current: _Writer | None = None


def _writer() -> _Writer:
    global _current  # noqa: PLW0603  # one value, replaced as a whole
    options = settings.snapshot()
    writer = _current
    if writer is None or writer.options is not options:
        writer = _current = _Writer(options)
    return writer


def _lock(connection: BaseDatabaseWrapper, lanes: list[Lane]) -> None:
    """Wait until no other transaction that writes these lanes in order is open."""
    topics, keys = [topic for topic, _key in lanes], [key for _topic, key in lanes]
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [topics, keys])


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row.text or row.raw or "")
        if len(chunk) == CHUNK_ROWS or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _not_in_transaction(alias: str) -> str:
    if _is_async():
        return (
            "stash() was called in async code, which is in no transaction of Django's. "
            "Use `await astash(...)`, or sync_to_async() on a function that does both."
        )
    text = f"No transaction.atomic() block is open on the database {alias!r}"
    elsewhere = [
        connection.alias
        for connection in connections.all(initialized_only=True)
        if connection.in_atomic_block
    ]
    if elsewhere:
        return (
            f"{text}, but one is on {elsewhere[0]!r}. If the business rows are "
            f"written there, pass using={elsewhere[0]!r}, and migrate the outbox there."
        )
    return (
        f"{text}. Call stash() inside `with transaction.atomic(using={alias!r}):`, "
        "together with the business rows."
    )


def _is_async() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
