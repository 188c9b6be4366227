"""
Confluent's wire format.

A zero byte, four bytes with the id of the writer's schema, then the value. In
Protobuf, a list of indexes comes before the value: the position of the message
in the schema's file, from the outermost message to the innermost.
"""

from __future__ import annotations

from typing import Final

MAGIC: Final = b"\0"
"""The first byte of a framed value."""

PREFIX_BYTES: Final = 5
"""Length of the magic byte and the id, in bytes."""

_MAX_DEPTH: Final = 64
"""Maximum nesting of messages."""


class Undecodable(Exception):
    """The value does not match the topic's schema."""


def schema_id(value: bytes) -> int:
    """
    Return the id of the writer's schema.

    Raises:
        Undecodable: the value does not have the wire format.
    """
    if len(value) < PREFIX_BYTES:
        raise Undecodable(f"{len(value)} bytes are too short for a schema id")
    if value[:1] != MAGIC:
        raise Undecodable(f"it starts with byte {value[0]}, not with 0 and a schema id")
    return int.from_bytes(value[1:PREFIX_BYTES], "big")


def message_path(value: bytes) -> tuple[tuple[int, ...], int]:
    """
    Return the indexes of the message in its file, and the offset of its bytes.

    Raises:
        Undecodable: the list of indexes is invalid.
    """
    count, at = _varint(value, PREFIX_BYTES)
    if not count:
        # Abbreviation for the first message of the file.
        return (0,), at
    if not 0 < count <= _MAX_DEPTH:
        raise Undecodable(f"{count} message indexes are not possible")
    path = []
    for _ in range(count):
        index, at = _varint(value, at)
        path.append(index)
    return tuple(path), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """Decode a zigzag varint; return the number and the offset of its end."""
    number = shift = 0
    while True:
        if at >= len(value) or shift > 63:
            raise Undecodable("the list of message indexes is not terminated")
        byte = value[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
