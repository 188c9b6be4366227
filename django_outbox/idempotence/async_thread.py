"""A thread, and so connections, of its own for an async block's synchronous calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Container
from contextvars import Token
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db.backends.base.base import BaseDatabaseWrapper

from ..exceptions import AlreadyOpen

_Result = TypeVar("_Result")

_open_blocks: Final[WeakKeyDictionary[BaseDatabaseWrapper, list[object]]] = (
    WeakKeyDictionary()
)
"""The async blocks that are open on a connection, each within the one before it."""


def enter_block(
    connection: BaseDatabaseWrapper, block: object, *, enclosing: Container[object]
) -> None:
    """
    Note that an async block opens on a connection; call it on the connection's thread.

    Raises:
        AlreadyOpen: the last block there is of another task, so that one of the two
            would end in the middle of the other one's transaction.
    """
    opened = _open_blocks.setdefault(connection, [])
    if opened and opened[-1] not in enclosing:
        raise AlreadyOpen(
            "Another task has a once() open on this database connection, and tasks "
            "share one below async_to_sync(): in a handler of runconsumer, or in an "
            "async view under WSGI. Await them one after the other, not in gather() or "
            "a TaskGroup."
        )
    opened.append(block)


def is_innermost(connection: BaseDatabaseWrapper, block: object) -> bool:
    """Whether no block is open within this one, of a task that was not awaited."""
    return _open_blocks[connection][-1] == block


def leave_block(connection: BaseDatabaseWrapper, block: object) -> None:
    """Note that the block has ended."""
    _open_blocks[connection].remove(block)


async def to_the_end(call: Awaitable[_Result]) -> _Result:
    """Await a call to its end, also when this task is cancelled meanwhile."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # In a queue behind others of its thread, it would never run.
        await asyncio.wait({task})
        raise


class OwnThread:
    """
    The thread on which `sync_to_async()` runs between `enter()` and `leave()`.

    asgiref's `ThreadSensitiveContext` would join a context that is already open,
    as every ASGI request has one. Below `async_to_sync()` the caller's thread
    stays in use.
    """

    def __init__(self) -> None:
        self._context = ThreadSensitiveContext()
        self._token: Token[ThreadSensitiveContext] | None = None

    def enter(self) -> None:
        """Run synchronous calls of this task and its children on the thread."""
        self._token = SyncToAsync.thread_sensitive_context.set(self._context)

    def leave(self) -> None:
        """End the thread after its last call; do not wait for it."""
        if self._token is None:
            return
        SyncToAsync.thread_sensitive_context.reset(self._token)
        self._token = None
        executor = SyncToAsync.context_to_thread_executor.pop(self._context, None)
        if executor is not None:
            executor.shutdown(wait=False)
