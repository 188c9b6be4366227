"""The value and the headers of a message, as classes that wrap values see them."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from ..exceptions import InvalidMessage
from ..message.incoming import ConsumedMessage
from ..message.limits import measure
from ..message.outgoing import Message


def value_of(message: Message) -> bytes | None:
    """
    Return the bytes that a consumer would get; None for a tombstone.

    Raises:
        InvalidMessage: The value is text that PostgreSQL or UTF-8 cannot hold.
    """
    value = cast("str | bytes | None", message.value)
    if not isinstance(value, str):
        return value
    measure("value", value)
    return value.encode()


def headers_of(message: Message) -> list[tuple[str, str]]:
    """Return the headers of a message that is being stashed; the list is its own."""
    return cast("list[tuple[str, str]]", message.headers)


def header_of(message: Message, name: str) -> str | None:
    """Return the last header of this name; None if there is none."""
    found = [value for header, value in headers_of(message) if header == name]
    return found[-1] if found else None


def refuse_header(message: Message, name: str, *, reason: str) -> None:
    """Raise `InvalidMessage` if the message has a header of this name."""
    if header_of(message, name) is not None:
        raise InvalidMessage(f"headers: the message has {name!r} already; {reason}.")


def with_value(
    message: ConsumedMessage,
    value: bytes | None,
    *,
    without: tuple[str, ...],
    added: tuple[tuple[str, bytes], ...] = (),
) -> ConsumedMessage:
    """Return the message with another value, without some headers, and with others."""
    headers = tuple(pair for pair in message.headers if pair[0] not in without)
    return replace(message, value=value, headers=(*headers, *added))
