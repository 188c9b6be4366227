"""
Limits of a message, checked before it is written.

Every error says what is wrong and what to do, and shows at most the start of a topic
or of a header's name: never a key, a value or a header's value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from ..exceptions import InvalidMessage
from ..settings.message_sizes import MAX_HEADERS, MAX_HEADERS_BYTES, MAX_KEY_LENGTH
from ..settings.options import LEDGER_SUFFIX, SHARED_NAME, OutboxSettings
from ..settings.rules import TOPIC_NAME

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]
"""Kafka headers, in order; pairs may repeat a name."""

RESERVED_PREFIX: Final = "outbox-"
"""Prefix of the outbox's headers; a forged one could make consumers drop messages."""
MAX_PARTITION: Final = 2**31 - 1
"""The highest partition number that Kafka and the column can hold."""

_RESERVED: Final = re.compile(
    rf"__|{SHARED_NAME}(-|\.|\Z)|.*{re.escape(LEDGER_SUFFIX)}\Z"
)
"""Kafka's internal topics, leader topics with derived names, and all ledger topics.
A row for one of them could forge a heartbeat or a ledger of any outbox."""

_MAX_SHOWN: Final = 60
_KNOWN_TOPICS: Final = 1_000


class Topics:
    """The topics that messages may have."""

    def __init__(self, settings: OutboxSettings) -> None:
        self._reserved = settings.reserved_topics
        self._allowed = frozenset(settings.ALLOWED_TOPICS)
        self.known: set[str] = set()
        """Valid topics that were checked before, up to a bound."""

    def check(self, topic: str) -> None:
        """Raise `InvalidMessage` if messages may not have this topic."""
        if isinstance(topic, str) and topic in self.known:
            return
        check_topic_name(topic)
        if topic in self._reserved or _RESERVED.match(topic):
            raise InvalidMessage(
                f"topic: {shown(topic)} is reserved for Kafka or the outbox itself; "
                "choose another name."
            )
        if self._allowed and topic not in self._allowed:
            raise InvalidMessage(
                f"topic: {shown(topic)} is not in ALLOWED_TOPICS; add it there or "
                "correct the name."
            )
        # Bounded, because topics may be generated from data.
        if len(self.known) < _KNOWN_TOPICS:
            self.known.add(topic)


def check_topic_name(topic: str) -> None:
    """Raise `InvalidMessage` if no topic can have this name."""
    if not isinstance(topic, str):
        raise InvalidMessage(f"topic: must be str, not {_kind(topic)}.")
    if not TOPIC_NAME.match(topic):
        raise InvalidMessage(
            f"topic: {shown(topic)} is not a valid topic name; use 1 to 249 "
            "letters, digits, '.', '_' or '-'."
        )


def check_key(key: str) -> None:
    """Raise `InvalidMessage` if this cannot be a key."""
    if not isinstance(key, str):
        raise InvalidMessage(f"key: must be str, not {_kind(key)}; write key=str(...).")
    if len(key) > MAX_KEY_LENGTH:
        raise InvalidMessage(
            f"key: {len(key)} characters; at most {MAX_KEY_LENGTH}. Use an id."
        )
    measure("key", key)


def check_value(value: str | bytes, limit: int) -> None:
    """Raise `InvalidMessage` if the value cannot be stored and sent."""
    size = measure("value", value) if isinstance(value, str) else len(value)
    if size > limit:
        raise InvalidMessage(
            f"value: {size} bytes exceed MAX_VALUE_BYTES ({limit}). Send a "
            "reference to the data, or raise the setting and the topic's "
            "max.message.bytes."
        )


def check_partition(partition: int | None) -> None:
    """Raise `InvalidMessage` if this cannot be a partition."""
    if partition is None:
        return
    if not isinstance(partition, int) or isinstance(partition, bool):
        raise InvalidMessage(f"partition: must be int, not {_kind(partition)}.")
    if not 0 <= partition <= MAX_PARTITION:
        raise InvalidMessage(
            f"partition: {partition} must be between 0 and {MAX_PARTITION}."
        )


def header_pairs(headers: Headers) -> Iterable[tuple[str, str]]:
    """Return the headers as pairs, unchecked."""
    # Most are a dict, and the check for other mappings is slower.
    return headers.items() if isinstance(headers, (dict, Mapping)) else headers


def split_headers(headers: Headers | None) -> tuple[list[str], list[str]]:
    """
    Return the names and the values of the headers.

    Raises:
        InvalidMessage: a name or a value breaks a limit.
    """
    if not headers:
        return [], []
    names: list[str] = []
    values: list[str] = []
    size = 0
    for pair in header_pairs(headers):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidMessage(
                f"headers: each must be a (name, value) pair, not {_kind(pair)}; "
                "pass a mapping or a sequence of pairs."
            )
        name, value = pair
        if not isinstance(name, str) or not name:
            raise InvalidMessage(
                f"headers: a name must be str and not empty, not {_kind(name)}."
            )
        size += _size_of_name(name)
        if not isinstance(value, str):
            raise InvalidMessage(
                f"headers: the value of {shown(name)} must be str, not {_kind(value)}."
            )
        size += measure("headers: the value of", value, of=name)
        names.append(name)
        values.append(value)
        if len(names) > MAX_HEADERS:
            raise InvalidMessage(
                f"headers: {shown(name)} is one more than {MAX_HEADERS}, the most "
                "that a message may have; put data into the value."
            )
        if size > MAX_HEADERS_BYTES:
            raise InvalidMessage(
                f"headers: with {shown(name)} names and values have {size} bytes, and "
                f"at most {MAX_HEADERS_BYTES} fit; put data into the value."
            )
    return names, values


@lru_cache(maxsize=1_000)
def _size_of_name(name: str) -> int:
    """Check a header's name and measure it; cached, as applications use few names."""
    if name[: len(RESERVED_PREFIX)].lower() == RESERVED_PREFIX:
        raise InvalidMessage(
            f"headers: {shown(name)} begins with {RESERVED_PREFIX!r}, which is "
            "reserved; rename it."
        )
    return measure("headers: a name", name)


def measure(what: str, text: str, *, of: str = "") -> int:
    """
    Return the size of the text in UTF-8.

    Args:
        what: what an error calls the text.
        of: a name that an error shows after that.

    Raises:
        InvalidMessage: PostgreSQL or UTF-8 cannot hold it.
    """
    if "\0" in text:
        raise InvalidMessage(
            f"{_called(what, of)}: contains a NUL character, which PostgreSQL cannot "
            "store as text; remove it, or pass a value as bytes."
        )
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        # The original error would show the text.
        raise InvalidMessage(
            f"{_called(what, of)}: contains a lone surrogate, which UTF-8 cannot "
            "encode; decode the source of the text with another error handler."
        ) from None


def shown(text: str) -> str:
    """Return the start of an untrusted text, escaped for display."""
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…")


def _kind(value: object) -> str:
    return type(value).__name__


def _called(what: str, of: str) -> str:
    return f"{what} {shown(of)}" if of else what
