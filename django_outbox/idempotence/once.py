"""
`once()`: what is done for a message is done once, however often it comes.

The block, or the decorated function, runs in a transaction that first claims
(consumer, key). While another transaction holds the same claim, this one
waits; if that one commits, this is a repeat, and if it rolls back, this goes
on as the first.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast, overload
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections, router, transaction

from ..conf import settings
from ..exceptions import AlreadyOpen, ConsumingError, InvalidKey
from ..message.incoming import ConsumedMessage
from ..models import ProcessedMessage, ProcessedQuerySet
from ..models.missing_tables import OutboxTables
from .async_thread import OwnThread
from .claims import Keyed, Run, checked_consumer, checked_key
from .commits import require_unspoilt

P = ParamSpec("P")
R = TypeVar("R")

_Claim: TypeAlias = tuple[str, str, str]

_open_claims: ContextVar[frozenset[_Claim]] = ContextVar(
    "django_outbox_open_claims", default=frozenset()
)


def alias_for(using: str | None = None) -> str:
    """Return the database in which processed messages are noted."""
    return using or settings.DATABASE or router.db_for_write(ProcessedMessage)


class Once:
    """
    The transaction of `once()`; each serves one `with` or `async with`.

    Args:
        idle_timeout: Seconds without a statement after which PostgreSQL ends the
            transaction; 0 = as the server is configured.
    """

    def __init__(
        self,
        source: Keyed,
        *,
        consumer: str,
        using: str | None = None,
        idle_timeout: float = 0.0,
    ) -> None:
        self._consumer = checked_consumer(consumer)
        self._key = checked_key(source)
        self._using = using
        self._idle_timeout = idle_timeout
        self._token: Token[frozenset[_Claim]] | None = None
        self._atomic: transaction.Atomic | None = None
        self._thread = OwnThread()
        self._strangers: set[str] = set()

    def __enter__(self) -> Run:
        alias = alias_for(self._using)
        self._announce(alias)
        try:
            return self._begin(alias)
        except BaseException:
            self._recall()
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._recall()
        self._end(exc)

    async def __aenter__(self) -> Run:
        # A thread and a connection of its own: tasks that shared them would find
        # themselves in each other's transactions.
        self._thread.enter()
        alias = alias_for(self._using)
        self._announce(alias)
        try:
            return await sync_to_async(self._begin)(alias)
        except BaseException as error:
            self._recall()
            # Whoever is cancelled while it waits gets the claim all the same.
            await sync_to_async(self._leave)(error)
            await self._leave_thread()
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._recall()
        try:
            await sync_to_async(self._end)(exc)
        finally:
            await self._leave_thread()

    def _begin(self, alias: str) -> Run:
        initialized = {c.alias for c in connections.all(initialized_only=True)}
        self._strangers = set(connections) - initialized
        self._connection = connections[alias]
        atomic = transaction.atomic(using=alias)
        atomic.__enter__()
        self._atomic = atomic
        try:
            rows = ProcessedMessage.objects.using(alias)
            with OutboxTables(alias):
                is_first = rows.claim(
                    self._consumer, self._key, idle_timeout=self._idle_timeout
                )
            mine = rows.filter(consumer=self._consumer, key=self._key)
            self._run = Run(
                is_first=is_first,
                response=None if is_first else _response(mine),
                save=lambda response: _save(mine, response),
            )
        except BaseException as error:
            self._leave(error)
            raise
        return self._run

    def _end(self, exc: BaseException | None) -> None:
        try:
            if exc is None:
                self._run.require_asked("once()")
                require_unspoilt(self._connection)
        except ConsumingError as error:
            self._leave(error)
            raise
        self._leave(exc)

    def _leave(self, error: BaseException | None) -> None:
        """End the transaction, if one is open: commit without an error."""
        atomic, self._atomic = self._atomic, None
        if atomic is not None:
            # Django looks at nothing but whether there is an error.
            atomic.__exit__(type(error) if error else None, error, None)

    def _announce(self, alias: str) -> None:
        claim = (alias, self._consumer, self._key)
        if claim in (claims := _open_claims.get()):
            raise AlreadyOpen(
                f"A once() of {self._consumer!r} with the same key is open around this "
                "one, as `runconsumer` opens one around each handler: remove this one, "
                "or give it a consumer= of its own."
            )
        self._token = _open_claims.set(claims | {claim})

    def _recall(self) -> None:
        if self._token is not None:
            _open_claims.reset(self._token)
            self._token = None

    async def _leave_thread(self) -> None:
        await sync_to_async(self._close_strangers)()
        self._thread.leave()

    def _close_strangers(self) -> None:
        """Close connections that the block has opened on a thread that ends now."""
        for connection in connections.all(initialized_only=True):
            if connection.alias in self._strangers and not connection.in_atomic_block:
                connection.close()


@overload
def once(message: Keyed, *, consumer: str, using: str | None = None) -> Once: ...
@overload
def once(*, key: str | UUID, consumer: str, using: str | None = None) -> Once: ...
@overload
def once(
    *,
    consumer: str,
    key: Callable[..., Keyed] | None = None,
    using: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def once(
    message: Keyed | None = None,
    *,
    consumer: str,
    key: str | UUID | Callable[..., Keyed] | None = None,
    using: str | None = None,
) -> Once | Callable[[Callable[P, R]], Callable[P, R]]:
    """
    Do something once for each message.

    As a context manager, `with` or `async with`, when it is given a message or
    a key:

        with once(message, consumer="billing") as run:
            if run.is_first:
                run.respond(charge(message.json()))
        return run.response

    Python cannot skip the block of a repeat; one that does not look at
    `is_first` is rolled back with `RepeatUnnoticed`.

    As a decorator of a function, plain or async, whose first argument is a
    message or a key: a repeat does not run it and returns what it returned the
    first time, which must be JSON or None.

    Args:
        message: What came: its message id is the key, else its place in Kafka.
        consumer: Who does it; each consumer has keys of its own.
        key: Any unique key instead of a message. For the decorator: makes the
            key of the function's arguments.
        using: Alias of the database; by default the setting DATABASE, else
            what the routers say.

    Raises:
        InvalidKey: The key or the consumer is empty or too long.
        AlreadyOpen: The same is being done further out in this context.
        TableMissing: `manage.py migrate` has not run there.
    """
    if message is not None:
        return Once(message, consumer=consumer, using=using)
    if isinstance(key, str | UUID):
        return Once(key, consumer=consumer, using=using)
    return _decorator(consumer, key or _first_argument, using)


def is_once(function: Callable[..., Any]) -> bool:
    """Whether a function is decorated with `once()`."""
    return getattr(function, "is_once", False)


def _decorator(
    consumer: str, key: Callable[..., Keyed], using: str | None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            source = key(*args, **kwargs)
            with Once(source, consumer=consumer, using=using) as run:
                if run.is_first:
                    run.respond(function(*args, **kwargs))
            return cast("R", run.response)

        @functools.wraps(function)
        async def acall(*args: P.args, **kwargs: P.kwargs) -> Any:
            source = key(*args, **kwargs)
            async with Once(source, consumer=consumer, using=using) as run:
                if run.is_first:
                    answer = cast("Awaitable[Any]", function(*args, **kwargs))
                    await sync_to_async(run.respond)(await answer)
            return run.response

        is_async = inspect.iscoroutinefunction(function)
        wrapper = cast("Callable[P, R]", acall if is_async else call)
        wrapper.is_once = True  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _first_argument(source: Any, *_: object, **__: object) -> Keyed:
    if isinstance(source, ConsumedMessage | str | UUID):
        return source
    raise InvalidKey(
        f"{type(source).__name__} is neither a ConsumedMessage nor a key; say with "
        "key= what is unique in the arguments."
    )


def _response(mine: ProcessedQuerySet) -> Any:
    return mine.values_list("response", flat=True).first()


def _save(mine: ProcessedQuerySet, response: Any) -> None:
    mine.update(response=response)
