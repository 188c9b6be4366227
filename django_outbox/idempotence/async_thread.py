"""A thread, and so connections, of its own for an async block's synchronous calls."""

from __future__ import annotations

from contextvars import Token

from asgiref.sync import SyncToAsync, ThreadSensitiveContext


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
