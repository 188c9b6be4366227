"""
The context of a request on every message that it stashes, and in what follows from it.

A correlation id, a tenant, whatever the application binds: messages carry it in their
headers, and a consumer has it again while it handles the message, also for the messages
that it stashes itself. Three parts, each of which works alone:

- `RequestContext` in Django's MIDDLEWARE binds the correlation id of a request;
- `ContextHeaders` in the outbox's MIDDLEWARE writes the context to messages, and binds
  it around handlers;
- `ContextFilter` in LOGGING puts it on log records.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final, TypeGuard

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..exceptions import InvalidMessage
from ..message.incoming import ConsumedMessage
from ..message.middleware import Handle, Middleware
from ..message.outgoing import Message
from .payload_headers import headers_of

CORRELATION_ID: Final = "correlation_id"
"""The name that `RequestContext` binds."""

REQUEST_HEADER: Final = "X-Request-ID"
"""Where a proxy has put the id of a request; the response has it, too."""

PREFIX: Final = "context-"
"""Of the headers of a message: `correlation_id` is in `context-correlation-id`."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,49}")
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""What is accepted as an id from outside: it goes to logs and headers."""

MAX_VALUE_LENGTH: Final = 500
"""Characters of a value."""

_context: ContextVar[Mapping[str, str]] = ContextVar(
    "django_outbox_context", default=MappingProxyType({})
)


def current() -> Mapping[str, str]:
    """Return what is bound here: names and values."""
    return _context.get()


@contextmanager
def bound(**values: str) -> Iterator[None]:
    """
    Bind these values while the block runs, beside those that are bound already.

    Names are lower case, with digits and underscores: `bound(tenant="acme")`.

    Raises:
        InvalidMessage: a name or a value cannot be a header.
    """
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise InvalidMessage(
                f"context: {name!r} is no name; use lower case letters, digits and _."
            )
        if not _is_sound(value):
            raise InvalidMessage(
                f"context: {name} must be a text of 1 to {MAX_VALUE_LENGTH} "
                "characters, all of which can be printed."
            )
    with _instead({**current(), **values}):
        yield


@contextmanager
def of(message: ConsumedMessage) -> Iterator[None]:
    """
    Bind the context of a message, and nothing else, while the block runs.

    For consumers of your own: `with of(message), once(message, consumer="billing")`.
    """
    headers = {name for name, _ in message.headers if name.startswith(PREFIX)}
    found = {
        header.removeprefix(PREFIX).replace("-", "_"): message.header(header)
        for header in headers
    }
    with received(found):
        yield


@contextmanager
def received(values: Mapping[str, object]) -> Iterator[None]:
    """
    Bind what has come from another process, and nothing else, while the block runs.

    Others may write there, too: what `bound()` would refuse is left out.
    """
    with _instead(
        {
            name: value
            for name, value in values.items()
            if _NAME.fullmatch(name) and _is_sound(value)
        }
    ):
        yield


def _is_sound(value: object) -> TypeGuard[str]:
    return (
        isinstance(value, str)
        and 0 < len(value) <= MAX_VALUE_LENGTH
        and value.isprintable()
    )


@contextmanager
def _instead(values: Mapping[str, str]) -> Iterator[None]:
    """Bind these values, and no others, while the block runs."""
    token = _context.set(MappingProxyType(values))
    try:
        yield
    finally:
        _context.reset(token)


class ContextHeaders(Middleware):
    """Carries the context: from the code that stashes to the code that consumes."""

    def stash(self, message: Message) -> Message:
        """Add a header for each value, unless the message has one itself."""
        headers = headers_of(message)
        names = {name for name, _ in headers}
        for name, value in current().items():
            header = PREFIX + name.replace("_", "-")
            if header not in names:
                headers.append((header, value))
        return message

    def consume(self, message: ConsumedMessage, handle: Handle) -> None:
        """Bind the context of the message around its handler."""
        with of(message):
            handle(message)


class RequestContext:
    """
    Django's middleware: binds `correlation_id` for the time of a request.

    It is the request's X-Request-ID, if that is 1 to 200 letters, digits, `.`, `_` or
    `-`, else a new UUID. The response has it in the same header.
    """

    async_capable = True
    sync_capable = True

    def __init__(
        self,
        get_response: Callable[
            [HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]
        ],
    ) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(
        self, request: HttpRequest
    ) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        correlation_id = _id_of(request)
        if self.is_async:
            return self._acall(request, correlation_id)
        with bound(**{CORRELATION_ID: correlation_id}):
            response = self.get_response(request)
        assert isinstance(response, HttpResponseBase)
        return _marked(response, correlation_id)

    async def _acall(
        self, request: HttpRequest, correlation_id: str
    ) -> HttpResponseBase:
        with bound(**{CORRELATION_ID: correlation_id}):
            response = await self.get_response(request)  # type: ignore[misc]
        return _marked(response, correlation_id)


def _id_of(request: HttpRequest) -> str:
    given = request.headers.get(REQUEST_HEADER, "")
    return given if _ID.fullmatch(given) else str(uuid.uuid4())


def _marked(response: HttpResponseBase, correlation_id: str) -> HttpResponseBase:
    response.headers.setdefault(REQUEST_HEADER, correlation_id)
    return response


class ContextFilter(logging.Filter):
    """Gives log records an attribute for each value, and always `correlation_id`."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in {CORRELATION_ID: "-", **current()}.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
