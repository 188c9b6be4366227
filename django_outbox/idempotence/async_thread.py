"""A thread, and so connections, for the synchronous calls of one async block."""

from __future__ import annotations

from contextvars import Token

from asgiref.sync import SyncToAsync, ThreadSensitiveContext


class OwnThread:
    """
    Where `sync_to_async()` runs between `enter()` and `leave()`.

    As asgiref's `ThreadSensitiveContext`, which joins one that is open, as one is
    in every request under ASGI. Below `async_to_sync()` the thread of its caller
    goes on to be used.
    """

    def __init__(self) -> None:
        self._context = ThreadSensitiveContext()
        self._token: Token[ThreadSensitiveContext] | None = None

    def enter(self) -> None:
        """Let synchronous calls of this task, and of those it starts, go there."""
        self._token = SyncToAsync.thread_sensitive_context.set(self._context)

    def leave(self) -> None:
        """End the thread after its last call, without waiting for it."""
        if self._token is None:
            return
        SyncToAsync.thread_sensitive_context.reset(self._token)
        self._token = None
        executor = SyncToAsync.context_to_thread_executor.pop(self._context, None)
        if executor is not None:
            executor.shutdown(wait=False)
