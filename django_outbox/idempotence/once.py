"""
`once()`: the effects of a message are applied once, however often it arrives.

The block or the decorated function runs in a transaction that first claims
(consumer, key). While another transaction holds the same claim, this one
waits. If the other commits, this is a repeat; if it rolls back, this one runs
as the first.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, cast, overload
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..conf import settings
from ..exceptions import AlreadyOpen, ConsumingError, InvalidKey
from ..message.incoming import ConsumedMessage
from ..models import ProcessedMessage, ProcessedQuerySet
from ..models.missing_tables import OutboxTables
from ..observability.tracing import ProcessSpan
from .async_thread import OwnThread, enter_block, is_innermost, leave_block, to_the_end
from .claims import (
    Keyed,
    OpeningClaim,
    Run,
    checked_consumer,
    checked_key,
    require_committable,
)

P = ParamSpec("P")
R = TypeVar("R")

_Claim: TypeAlias = tuple[str, str, str]

_ABSENT: Final[Any] = object()
"""Default of arguments. It is not None: a key that is None is an error."""

_open_claims: ContextVar[frozenset[_Claim]] = ContextVar(
    "django_outbox_open_claims", default=frozenset()
)


def alias_for(using: str | None) -> str:
    """Return the alias of the database with the processed messages."""
    return using or settings.DATABASE or router.db_for_write(ProcessedMessage)


class Once:
    """
    The transaction of `once()`; for one `with` or `async with`.

    Args:
        idle_timeout: Idle-in-transaction time-out in seconds, after which
            PostgreSQL ends it; 0 = the server's setting.
        has_savepoint: Within another transaction, an error rolls back this block
            only; without a savepoint it rolls back all of that transaction.
        traced: The message whose trace the block continues; None: it has no span.
        opening_claim: Tried first; None = always claim with a statement of its own.
    """

    def __init__(
        self,
        source: Keyed,
        *,
        consumer: str,
        using: str | None = None,
        idle_timeout: float = 0.0,
        has_savepoint: bool = True,
        traced: ConsumedMessage | None = None,
        opening_claim: OpeningClaim | None = None,
    ) -> None:
        self._consumer = checked_consumer(consumer)
        self._key = checked_key(source)
        if traced is not None and not settings.TRACING:
            traced = None
        self._span = ProcessSpan(traced, consumer=self._consumer)
        self._using = using
        self._idle_timeout = idle_timeout
        self._has_savepoint = has_savepoint
        self._opening_claim = opening_claim
        self._token: Token[frozenset[_Claim]] | None = None
        self._atomic: transaction.Atomic | None = None
        self._block: tuple[BaseDatabaseWrapper, _Claim] | None = None
        """Of an async block, as it is known to others on its connection."""

    def __enter__(self) -> Run:
        alias = alias_for(self._using)
        self._announce(alias)
        self._span.__enter__()
        try:
            return self._begin(alias)
        except BaseException as error:
            self._recall()
            self._end_span(error)
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._recall()
        try:
            self._end(exc)
        except BaseException as error:
            self._end_span(error)
            raise
        self._end_span(exc)

    async def __aenter__(self) -> Run:
        alias = alias_for(self._using)
        self._announce(alias)
        self._span.__enter__()
        # Its own thread and connections: tasks that shared them would run in each
        # other's transactions.
        self._thread = OwnThread()
        self._unopened: set[str] = set()
        self._thread.enter()
        try:
            return await sync_to_async(self._begin_apart)(alias)
        except BaseException as error:
            self._recall()
            self._end_span(error)
            # A task that is cancelled while it waits still gets the claim.
            await to_the_end(sync_to_async(self._leave)(error))
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
            await to_the_end(sync_to_async(self._end)(exc))
        except BaseException as error:
            self._end_span(error)
            raise
        finally:
            self._end_span(exc)
            await self._leave_thread()

    def _begin_apart(self, alias: str) -> Run:
        initialized = {c.alias for c in connections.all(initialized_only=True)}
        self._unopened = set(connections) - initialized
        connection, block = connections[alias], (alias, self._consumer, self._key)
        enter_block(connection, block, enclosing=_open_claims.get() - {block})
        self._block = connection, block
        return self._begin(alias)

    def _begin(self, alias: str) -> Run:
        self._connection = connections[alias]
        atomic = transaction.atomic(using=alias, savepoint=self._has_savepoint)
        atomic.__enter__()
        self._atomic = atomic
        try:
            with OutboxTables(alias):
                is_first = self._claim(alias)
            self._run = Run(
                is_first=is_first,
                response=None if is_first else self._response(alias),
                save=lambda response: self._save(alias, response),
            )
        except BaseException as error:
            self._leave(error)
            raise
        self._span.ran(is_first=is_first)
        return self._run

    def _claim(self, alias: str) -> bool:
        name, key, idle_timeout = self._consumer, self._key, self._idle_timeout
        if self._opening_claim is not None:
            is_first = self._opening_claim(
                self._connection, name, key, idle_timeout=idle_timeout
            )
            if is_first is not None:
                return is_first
        rows = ProcessedMessage.objects.using(alias)
        return rows.claim(name, key, idle_timeout=idle_timeout)

    def _response(self, alias: str) -> Any:
        return self._mine(alias).values_list("response", flat=True).first()

    def _save(self, alias: str, response: Any) -> None:
        self._mine(alias).update(response=response)

    def _mine(self, alias: str) -> ProcessedQuerySet:
        rows = ProcessedMessage.objects.using(alias)
        return rows.filter(consumer=self._consumer, key=self._key)

    def _end(self, exc: BaseException | None) -> None:
        try:
            if exc is None:
                if self._is_crossed:
                    raise AlreadyOpen(
                        "A task that was started in this once() has another one open "
                        "still: await it before the end of the block. Both are rolled "
                        "back."
                    )
                self._run.require_asked("once()")
                require_committable(self._connection)
        except ConsumingError as error:
            self._leave(error)
            raise
        self._leave(exc)

    def _leave(self, error: BaseException | None) -> None:
        """End the transaction, if one is open: commit without an error."""
        atomic, self._atomic = self._atomic, None
        if atomic is None:
            return
        is_crossed = self._is_crossed
        # Django only checks whether there is an error.
        atomic.__exit__(type(error) if error else None, error, None)
        if is_crossed:
            # That was the end of the block within, for Django.
            self._connection.set_rollback(True)

    @property
    def _is_crossed(self) -> bool:
        """Whether a block is open within this one that ends."""
        return self._block is not None and not is_innermost(*self._block)

    def _end_span(self, error: BaseException | None) -> None:
        """End the span, if it has not ended yet."""
        traceback = error.__traceback__ if error else None
        self._span.__exit__(type(error) if error else None, error, traceback)

    def _announce(self, alias: str) -> None:
        claim = (alias, self._consumer, self._key)
        if claim in (claims := _open_claims.get()):
            raise AlreadyOpen(
                f"A once() of {self._consumer!r} with the same key is already open "
                "here (`runconsumer` opens one around each handler): remove the inner "
                "one, or give it another consumer=."
            )
        self._token = _open_claims.set(claims | {claim})

    def _recall(self) -> None:
        if self._token is not None:
            _open_claims.reset(self._token)
            self._token = None

    async def _leave_thread(self) -> None:
        try:
            await to_the_end(sync_to_async(self._close_new_connections)())
        finally:
            if self._block is not None:
                leave_block(*self._block)
            self._thread.leave()

    def _close_new_connections(self) -> None:
        """Close connections that the block opened on the ending thread."""
        for connection in connections.all(initialized_only=True):
            if connection.alias in self._unopened and not connection.in_atomic_block:
                connection.close()


@overload
def once(message: Keyed, *, consumer: str, using: str | None = None) -> Once: ...
@overload
def once(*, key: str | UUID, consumer: str, using: str | None = None) -> Once: ...
@overload
def once(
    *,
    consumer: str,
    key: Callable[..., Keyed] = ...,
    using: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def once(
    message: Keyed = _ABSENT,
    *,
    consumer: str,
    key: str | UUID | Callable[..., Keyed] = _ABSENT,
    using: str | None = None,
) -> Once | Callable[[Callable[P, R]], Callable[P, R]]:
    """
    Do something once for each message.

    With a message or a key it is a context manager, for `with` or `async with`:

        with once(message, consumer="billing") as run:
            if run.is_first:
                run.respond(charge(message.json()))
        return run.response

    In `async with` it is `await run.arespond(...)`.

    Python cannot skip the block of a repeat; a block that does not read
    `is_first` is rolled back with `RepeatUnnoticed`.

    Otherwise it decorates a function, plain or async, whose first argument is a
    message or a key. A repeat does not run the function and returns the first
    result, which must be JSON or None.

    Args:
        message: Its key is the message id, else topic, partition, offset and time.
        consumer: Name of the consumer; each has its own keys.
        key: Any unique key instead of a message. For the decorator: makes the
            key from the function's arguments.
        using: Alias of the database; by default the setting DATABASE, else the
            choice of the database routers.

    Raises:
        InvalidKey: The key or the consumer is not text, or is empty, too long or not
            printable; or there are both a message and a key.
        AlreadyOpen: The same claim is already open in this context.
        RepeatUnnoticed: The block did not read `is_first`.
        ErrorSwallowed: The block caught a database error, so it cannot commit.
        TableMissing: `manage.py migrate` has not run on that database.
    """
    if message is not _ABSENT:
        if key is not _ABSENT:
            raise InvalidKey(
                "once() got a message and key=, and uses only one of them: for a key "
                "of your own write once(key=..., consumer=...)."
            )
        return Once(message, consumer=consumer, using=using, traced=_traced(message))
    if key is _ABSENT:
        return _decorator(consumer, _first_argument, using)
    if callable(key):
        return _decorator(consumer, key, using)
    return Once(key, consumer=consumer, using=using)


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
            traced = _traced(source, *args)
            with Once(source, consumer=consumer, using=using, traced=traced) as run:
                if run.is_first:
                    run.respond(function(*args, **kwargs))
            return cast("R", run.response)

        @functools.wraps(function)
        async def acall(*args: P.args, **kwargs: P.kwargs) -> Any:
            source = key(*args, **kwargs)
            traced = _traced(source, *args)
            one = Once(source, consumer=consumer, using=using, traced=traced)
            async with one as run:
                if run.is_first:
                    answer = cast("Awaitable[Any]", function(*args, **kwargs))
                    await run.arespond(await answer)
            return run.response

        is_async = inspect.iscoroutinefunction(function)
        wrapper = cast("Callable[P, R]", acall if is_async else call)
        wrapper.is_once = True  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _traced(*arguments: object) -> ConsumedMessage | None:
    """Return the first message among them: its trace is continued."""
    return next((a for a in arguments if isinstance(a, ConsumedMessage)), None)


def _first_argument(*arguments: object, **_: object) -> Keyed:
    if not arguments:
        raise InvalidKey(
            "The message or key is the first positional argument; pass key= to derive "
            "a key from the others."
        )
    source = arguments[0]
    if isinstance(source, ConsumedMessage | str | UUID):
        return source
    raise InvalidKey(
        f"{type(source).__name__} is neither a ConsumedMessage nor a key; pass "
        "key= to derive a key from the arguments."
    )
