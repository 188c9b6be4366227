"""Values that are compressed with gzip on their way, where that makes them smaller."""

from __future__ import annotations

import gzip

from ..message.incoming import ConsumedMessage
from ..message.middleware import Handle, Middleware
from ..message.outgoing import Message
from ..pipeline.payloads.wrapping import (
    CONTENT_ENCODING,
    GZIP,
    MAX_UNWRAPPED_BYTES,
    decompressed,
)
from .payload_headers import header_of, headers_of, value_of, with_value


class Compressed(Middleware):
    """
    Compresses large values; the header `content-encoding: gzip` says so.

    A message that has a `content-encoding` already is stashed as it is, and one with
    another than gzip is handled as it is. The first payload class in MIDDLEWARE.
    """

    at_least: int = 1_000
    """Bytes from which on a value is compressed."""

    most: int = MAX_UNWRAPPED_BYTES
    """Bytes of the largest value that is compressed, and of one that is decompressed:
    a small message cannot fill the memory of a consumer."""

    level: int = 6
    """From 1, the fastest, to 9, the smallest."""

    def stash(self, message: Message) -> Message:
        """Compress the value, if that makes it smaller."""
        value = value_of(message)
        if value is None or not self.at_least <= len(value) <= self.most:
            return message
        if header_of(message, CONTENT_ENCODING) is not None:
            return message
        # Without a time, so that equal values stay equal.
        smaller = gzip.compress(value, self.level, mtime=0)
        if len(smaller) < len(value):
            message.value = smaller
            headers_of(message).append((CONTENT_ENCODING, GZIP))
        return message

    def consume(self, message: ConsumedMessage, handle: Handle) -> None:
        """Decompress the value; the handler does not see the header."""
        if message.value is not None and message.header(CONTENT_ENCODING) == GZIP:
            value = decompressed(message.value, most=self.most)
            message = with_value(message, value, without=(CONTENT_ENCODING,))
        handle(message)
