"""Turns messages into rows: checked and serialized. Independent of Django."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from ..exceptions import InvalidMessage, StashError
from ..settings.options import OutboxSettings
from .limits import (
    Headers,
    Topics,
    check_key,
    check_partition,
    check_value,
    split_headers,
)
from .value_path import find_refused

_Split: TypeAlias = Callable[[Headers | None], tuple[list[str], list[str]]]

_CONTEXT: Final = ("topic", "key", "headers")
"""What a serializer gets of a message, where it has parameters of these names."""


@dataclass(slots=True)
class Message:
    """
    One message of `stash_many()`, with the arguments of `stash()`.

    Not frozen: to make a frozen one takes more than twice as long.
    """

    topic: str
    _: KW_ONLY
    key: str
    value: object
    """No default: a forgotten value would be a tombstone."""
    headers: Headers | None = None
    partition: int | None = None


class Row(NamedTuple):
    """A message as a row, in the order of the INSERT's columns."""

    topic: str
    key: str
    text: str | None
    raw: bytes | None
    header_names: list[str]
    header_values: list[str]
    partition: int | None


class Rows:
    """
    Makes rows of messages.

    Args:
        serialize: Turns a value that is neither text nor bytes into one of them. Its
            keyword-only parameters topic, key and headers are the message's.
        trace_headers: Returns the headers that carry the context of a trace.
        transform: Changes each message, once its value is text or bytes.
    """

    def __init__(
        self,
        settings: OutboxSettings,
        serialize: Callable[..., str | bytes],
        *,
        trace_headers: Callable[[], list[tuple[str, str]]] = list,
        transform: Callable[[Message], Message] | None = None,
    ) -> None:
        self._settings = settings
        self._transform = transform
        self._trace_headers = trace_headers
        self._serialize = serialize
        self._context = _context_of(serialize)
        self._topics = Topics(settings)

    def make(self, message: Message) -> Row:
        """
        Check a message and serialize its value.

        Raises:
            InvalidMessage: It breaks a limit.
        """
        return self._make(message, self._trace_headers(), split_headers)

    def _make(
        self, message: Message, trace: list[tuple[str, str]], split: _Split
    ) -> Row:
        if message.headers is not None and isinstance(message.headers, Iterator):
            # The serializer may read them too, and an iterator gives them once.
            message = replace(message, headers=list(message.headers))
        if self._transform is not None:
            message = self._transform(self._serialized(message))
        topic, key = message.topic, message.key
        self._topics.check(topic)
        check_key(key)
        check_partition(message.partition)
        names, header_values = split(message.headers)
        if trace:
            names, header_values = _with_trace(names, header_values, trace)
        stored = self._stored(message)
        if stored is not None:
            check_value(stored, self._settings.MAX_VALUE_BYTES)
        return Row(
            topic,
            key,
            stored if isinstance(stored, str) else None,
            stored if isinstance(stored, bytes) else None,
            names,
            header_values,
            message.partition,
        )

    def _serialized(self, message: Message) -> Message:
        """Return a copy whose value is what would be stored, its headers a list."""
        return Message(
            message.topic,
            key=message.key,
            value=self._stored(message),
            headers=list(zip(*split_headers(message.headers), strict=True)),
            partition=message.partition,
        )

    def _stored(self, message: Message) -> str | bytes | None:
        """Return what is stored of a value: text, bytes, or None for a tombstone."""
        value = message.value
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        return self._encoded(message)

    def make_all(self, messages: Iterable[Message]) -> Iterator[Row]:
        """
        Make a row of each message, in their order.

        Raises:
            InvalidMessage: One breaks a limit or is not a `Message`; the error names
                its position.
        """
        if isinstance(messages, Message | str | bytes) or not isinstance(
            messages, Iterable
        ):
            raise InvalidMessage(
                "messages: must be an iterable of Message, not "
                f"{type(messages).__name__}; pass a list."
            )
        trace, split = self._trace_headers(), _split_again()
        for position, message in enumerate(messages):
            if not isinstance(message, Message):
                raise InvalidMessage(
                    f"messages[{position}]: must be a Message, not "
                    f"{type(message).__name__}; pass django_outbox.Message(topic, "
                    "key=..., value=...)."
                )
            try:
                row = self._make(message, trace, split)
            except InvalidMessage as exc:
                raise InvalidMessage(f"messages[{position}]: {exc}") from exc
            yield row

    def _encoded(self, message: Message) -> str | bytes:
        name, serialize = self._settings.SERIALIZER, self._serialize
        if self._context:
            given = {one: getattr(message, one) for one in self._context}
            serialize = partial(serialize, **given)
        try:
            encoded = serialize(message.value)
        except (TypeError, ValueError, RecursionError) as exc:
            refused = find_refused(message.value, serialize)
            raise InvalidMessage(
                f"{refused.path}: SERIALIZER ({name}) cannot turn this {refused.kind} "
                "into text. Convert it first, or set SERIALIZER to a callable that "
                "accepts it."
            ) from exc
        if not isinstance(encoded, str | bytes):
            raise StashError(
                f"SERIALIZER ({name}) must return str or bytes, not "
                f"{type(encoded).__name__}."
            )
        return encoded


def _context_of(serialize: Callable[..., Any]) -> tuple[str, ...]:
    """Return which parts of a message a serializer gets besides the value."""
    try:
        parameters = inspect.signature(serialize).parameters
    except (TypeError, ValueError):
        # Functions of compiled modules may have none that can be read.
        return ()
    return tuple(
        name
        for name in _CONTEXT
        if name in parameters
        and parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    )


def _split_again() -> _Split:
    """Return `split_headers` for messages in a row, which often have equal headers."""
    known: tuple[Any, ...] = ()
    parts: tuple[list[str], list[str]] = [], []

    def split(headers: Headers | None) -> tuple[list[str], list[str]]:
        nonlocal known, parts
        if type(headers) is not dict:
            return split_headers(headers)
        # A copy, since the caller may change the headers for the next message.
        pairs = tuple(headers.items())
        if pairs != known:
            parts = split_headers(headers)
            known = pairs
        return parts

    return split


def _with_trace(
    names: list[str], values: list[str], trace: list[tuple[str, str]]
) -> tuple[list[str], list[str]]:
    """
    Add the headers of a trace, unless the message has one of them itself.

    A message that they would make too large goes without them.
    """
    if any(name in names for name, _ in trace):
        return names, values
    try:
        return split_headers([*zip(names, values, strict=True), *trace])
    except InvalidMessage:
        return names, values
