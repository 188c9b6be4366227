"""
Dead letters: messages that keep failing, with headers that say why.

A dead letter keeps the key, value and headers of its message, so that it can be
sent again: the message id is unchanged, and the consumer has not claimed it.

A topic may refuse a message of that size or form for good, and then the message
would block its partition. Therefore each dead letter has smaller versions: one
without the value, and one of about a kilobyte, which leaves out the message's
own headers too. They carry the size and the SHA-256 digest of what they leave
out; `outbox-dlt-offset` says where the message itself is.

A group may handle its own dead letters again later. Such a retry needs the whole one;
smaller ones go to the last dead letter topic. Each failure adds its headers, and the
position is always that of the first failure. A message without an id gets its identity
as one, so that it has its effects once in all these topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

from ..exceptions import RecordPoisoned
from ..message.headers import MESSAGE_ID, Headers
from ..message.incoming import ConsumedMessage, OutgoingMessage
from ..wording import number_in
from .reasons import bounded, reason

PREFIX: Final = "outbox-dlt-"
"""Of the headers that say why; the last of each name counts."""

MAX_REASON_BYTES: Final = 1000
"""Bytes of the exception's text in a dead letter; the smallest version has a tenth."""

MAX_KEY_BYTES: Final = 512
"""Bytes of the longest key that the smallest version keeps."""

_OF_THE_TOPIC: Final = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
    }
)
"""Codes of refusals that do not depend on the message."""


def dead_letters(
    message: ConsumedMessage,
    *,
    topic: str,
    group: str,
    error: BaseException,
    attempts: int,
    last_topic: str = "",
    is_retry: bool = False,
) -> tuple[OutgoingMessage, ...]:
    """
    Return the versions of a dead letter, the whole one first.

    Args:
        topic: where the whole one goes.
        last_topic: where smaller ones go; by default the same.
        is_retry: the message is a dead letter itself, of the same group.
    """
    text, last_topic = reason(error), last_topic or topic
    why = {
        "group": group,
        **_origin(message, attempts, is_retry=is_retry),
        "error": bounded(type(error).__qualname__, 255),
        "reason": bounded(text, MAX_REASON_BYTES),
    }
    short = {**why, "reason": bounded(text, MAX_REASON_BYTES // 10)}
    kept: Headers = [
        (name, value)
        for name, value in message.headers
        if is_retry or not name.startswith(PREFIX)
    ]
    if message.message_id is None:
        # Groups that have handled it know it by this, also when it comes again.
        kept.append((MESSAGE_ID, message.identity))
    headers = [*kept, *_named(why.items())]
    whole = OutgoingMessage(topic, message.key, message.value, headers)
    left_out = _named(_left_out("value", message.value))
    smallest = OutgoingMessage(
        last_topic,
        _short_key(message),
        # Only a tombstone may become one: replayed, it deletes its key.
        None if message.is_tombstone else b"",
        [
            (MESSAGE_ID, message.identity),
            *_named(short.items()),
            *left_out,
            *_named(_headers_left_out(message)),
            *_named(_key_left_out(message)),
        ],
    )
    if not message.value:
        return whole, smallest
    without_value = whole._replace(
        topic=last_topic, value=b"", headers=[*headers, *left_out]
    )
    return whole, without_value, smallest


def may_accept_smaller(refusal: RecordPoisoned) -> bool:
    """Whether the topic may accept a smaller dead letter than the refused one."""
    return refusal.is_certain and refusal.code not in _OF_THE_TOPIC


def _origin(
    message: ConsumedMessage, attempts: int, *, is_retry: bool
) -> dict[str, str]:
    """Return where a message failed first, and how many attempts it has had."""
    position = {
        "topic": message.topic,
        "partition": str(message.partition),
        "offset": str(message.offset),
    }
    if is_retry:
        found = {name: message.header(PREFIX + name) for name in position}
        position = {name: value or position[name] for name, value in found.items()}
        attempts += number_in(message.header(PREFIX + "attempts") or "", 9) or 0
    return {**position, "attempts": str(attempts)}


def _named(texts: Iterable[tuple[str, str]]) -> Headers:
    return [(PREFIX + name, text) for name, text in texts]


def _left_out(name: str, data: bytes | None) -> Iterator[tuple[str, str]]:
    if data:
        yield f"{name}-size", str(len(data))
        yield f"{name}-sha256", sha256(data).hexdigest()


def _headers_left_out(message: ConsumedMessage) -> Iterator[tuple[str, str]]:
    if message.headers:
        sizes = [len(n.encode()) + len(v or b"") for n, v in message.headers]
        yield "headers-count", str(len(sizes))
        yield "headers-size", str(sum(sizes))


def _key_left_out(message: ConsumedMessage) -> Iterator[tuple[str, str]]:
    if len(message.key or b"") > MAX_KEY_BYTES:
        yield from _left_out("key", message.key)


def _short_key(message: ConsumedMessage) -> bytes:
    """Return the key, else the offset as text: compacted topics need a key."""
    if message.key is None or len(message.key) > MAX_KEY_BYTES:
        return f"{message.topic}/{message.partition}/{message.offset}".encode()
    return message.key
