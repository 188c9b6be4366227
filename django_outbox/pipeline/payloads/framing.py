"""
The wire format of Confluent's serializers, as bytes.

A zero, four bytes with the id of the writer's schema, then the value itself.
In Protobuf there is a list in front of the value: it leads to the message in
the schema's file, from the outermost to the innermost.
"""

from __future__ import annotations

from typing import Final

MAGIC: Final = b"\0"
"""The first byte of a framed value."""

PREFIX: Final = 5
"""Bytes of magic and id."""

_DEEPEST: Final = 64
"""More messages than that are in no other message."""


class Undecodable(Exception):
    """The value is not what the topic's schema says; the text is for people."""


def schema_id(value: bytes) -> int:
    """
    The id of the writer's schema.

    Raises:
        Undecodable: the value is not framed.
    """
    if len(value) < PREFIX:
        raise Undecodable(f"{len(value)} bytes are too few for a schema's id")
    if value[:1] != MAGIC:
        raise Undecodable(f"it begins with {value[0]} and not with 0 and a schema's id")
    return int.from_bytes(value[1:PREFIX], "big")


def message_path(value: bytes) -> tuple[tuple[int, ...], int]:
    """
    Where the message is in its file, and where its bytes begin.

    Raises:
        Undecodable: there is no such list.
    """
    count, at = _varint(value, PREFIX)
    if not count:
        # Short for the first message of the file.
        return (0,), at
    if not 0 < count <= _DEEPEST:
        raise Undecodable(f"{count} is no length of a list of messages")
    path = []
    for _ in range(count):
        place, at = _varint(value, at)
        path.append(place)
    return tuple(path), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """The signed number (zigzag) that begins here, and where it ends."""
    number = shift = 0
    while True:
        if at >= len(value) or shift > 63:
            raise Undecodable("the list of messages does not end")
        byte = value[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
