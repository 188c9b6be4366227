"""
The caller's transaction, and the settings that every write needs.

All statements run on the caller's own connection.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, router

from ..conf import serializer, settings
from ..exceptions import NotInTransaction
from ..message.channel import channel_of
from ..message.middleware import load, stash_hook
from ..message.outgoing import Row, Rows
from ..message.record import OrderingKey
from ..observability.tracing import trace_headers
from ..settings.options import OutboxSettings

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_P = ParamSpec("_P")
_R = TypeVar("_R")

CHUNK_ROWS: Final = 5_000
"""Rows of one statement: an INSERT of them stays under 65,535 parameters."""
CHUNK_BYTES: Final = 4_000_000
"""Bytes (or characters) of their values, unless one value is larger."""

COLUMNS: Final = (
    "kafka_topic, kafka_key, kafka_value, kafka_value_bytes, kafka_header_keys, "
    "kafka_header_values, kafka_partition, message_id"
)
"""The columns of a `Row`, in its order, and its id; the others have defaults."""
VALUES: Final = "%s, %s, %s, %s, %s::text[], %s::text[], %s, %s"
"""One parameter for each column."""

_LOCK: Final = """\
-- outbox: order
SELECT pg_advisory_xact_lock(hashtextextended(key, hashtextextended(topic, 0)))
FROM unnest(%s::text[], %s::text[]) AS key(topic, key)"""


def make_rows(options: OutboxSettings) -> Rows:
    """Return what turns messages into rows, with these settings."""
    return Rows(
        options,
        serializer(options.SERIALIZER),
        trace_headers=trace_headers if options.TRACING else list,
        transform=stash_hook(load(options.MIDDLEWARE)),
    )


class Writer:
    """The settings for writing, and the statements made of them."""

    def __init__(self, options: OutboxSettings) -> None:
        # Defer the import: models cannot load before the app registry.
        from ..models import OutboxRecord

        self.options = options
        self._model = OutboxRecord
        self.rows = make_rows(options)
        table = OutboxRecord._meta.db_table
        notify = f"pg_notify('{channel_of(table)}', '')"
        self.returning = f"\nRETURNING {notify}" if options.NOTIFY else ""
        """The end of an INSERT; with the setting NOTIFY it notifies the harvester."""
        self._parts = {
            "outbox": f'"{table}"',
            "staged": f'"{table}_staged"',
            "series": f'"{table}_series"',
            "columns": COLUMNS,
            "values": VALUES,
            "notify": notify,
            "returning": self.returning,
        }
        self._statements: dict[str, str] = {}

    def statement(self, template: str) -> str:
        """Put tables and columns into a statement."""
        statement = self._statements.get(template)
        if statement is None:
            statement = self._statements[template] = template.format(**self._parts)
        return statement

    def connection(
        self, using: str | None, *, caller: str = "stash"
    ) -> BaseDatabaseWrapper:
        """Return the caller's own connection to PostgreSQL, in a transaction."""
        alias = using or self.options.DATABASE or router.db_for_write(self._model)
        connection = connections[alias]
        if not connection.in_atomic_block:
            raise NotInTransaction(_not_in_transaction(alias, caller))
        if connection.vendor != "postgresql":
            # As above.
            from ..models.routing import require_postgresql

            require_postgresql(alias)
        return connection


_current: Writer | None = None


def current_writer() -> Writer:
    """Return the writer for the current settings."""
    global _current  # noqa: PLW0603  # one value, replaced as a whole
    options = settings.snapshot()
    writer = _current
    if writer is None or writer.options is not options:
        writer = _current = Writer(options)
    return writer


def lock_keys(connection: BaseDatabaseWrapper, keys: Iterable[OrderingKey]) -> None:
    """
    Wait until no other transaction holds the locks of these topics and keys.

    The locks are taken in one order, so that two batches cannot deadlock.
    """
    ordered = sorted(set(keys))
    with connection.cursor() as cursor:
        cursor.execute(
            _LOCK, [[topic for topic, _ in ordered], [key for _, key in ordered]]
        )


def chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Split rows into lists that fit into one statement each."""
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


def identified(chunk: Sequence[Row], *more: Any) -> tuple[list[uuid.UUID], list[Any]]:
    """Give rows their ids; return these, and the parameters of an INSERT."""
    ids = [uuid.uuid4() for _ in chunk]
    pairs = zip(chunk, ids, strict=True)
    return ids, [value for row, one in pairs for value in (*row, one, *more)]


def awaited(call: Callable[_P, _R]) -> Callable[_P, Coroutine[Any, Any, _R]]:
    """
    Make the async twin of a call, named with an "a" before the call's name.

    It runs on the thread of Django's own async calls, and so in the transaction that
    was opened there.
    """

    @wraps(call)
    async def twin(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return await sync_to_async(call, thread_sensitive=True)(*args, **kwargs)

    name = call.__name__
    twin.__name__ = f"a{name}"
    twin.__qualname__ = call.__qualname__.removesuffix(name) + twin.__name__
    return twin


def _not_in_transaction(alias: str, caller: str) -> str:
    if _is_async():
        return (
            f"{caller}() was called in async code, which is in no transaction of "
            f"Django's. Use `await a{caller}(...)`, or sync_to_async() on a function "
            "that does both."
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
        f"{text}. Call {caller}() inside `with transaction.atomic(using={alias!r}):`, "
        "together with the business rows."
    )


def _is_async() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
