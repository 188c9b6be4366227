"""
What one message may hold: checked by `stash()` before it touches the table.

Every error names what is wrong and what to do, and shows no more than the
start of a topic or a header's name: never a key, a value or a header's value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from ..exceptions import InvalidMessage
from ..settings.options import LEDGER_SUFFIX, SHARED_NAME, OutboxSettings
from ..settings.rules import MAX_HEADERS, MAX_HEADERS_BYTES, TOPIC_NAME

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]
"""Kafka headers, in order; pairs may repeat a name."""

MAX_KEY_LENGTH: Final = 255
"""Characters of a key: the width of its column."""
RESERVED_PREFIX: Final = "outbox-"
"""Names of our own headers; a forged one could make consumers drop messages."""
MAX_PARTITION: Final = 2**31 - 1
"""The highest partition number that Kafka and the column can hold."""

_RESERVED: Final = re.compile(
    rf"__|{SHARED_NAME}(-|\.|\Z)|.*{re.escape(LEDGER_SUFFIX)}\Z"
)
"""Kafka's own topics, the topics of elections with derived names, and all ledgers.
A row that goes there could forge a heartbeat or a ledger of any outbox."""

_SHOWN: Final = 60
_KNOWN_TOPICS: Final = 1_000


class Topics:
    """The topics that may be written to."""

    def __init__(self, settings: OutboxSettings) -> None:
        self._reserved = settings.reserved_topics
        self._allowed = frozenset(settings.ALLOWED_TOPICS)
        self.known: set[str] = set()
        """Some that were checked and found right."""

    def check(self, topic: str) -> None:
        """Raise `InvalidMessage` unless messages may be written to this topic."""
        if isinstance(topic, str) and topic in self.known:
            return
        if not isinstance(topic, str):
            raise InvalidMessage(f"topic: must be str, not {_kind(topic)}.")
        if not TOPIC_NAME.match(topic):
            raise InvalidMessage(
                f"topic: {shown(topic)} is no Kafka topic; use 1 to 249 letters, "
                "digits, '.', '_' or '-'."
            )
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
        # Topics made up from data must not fill the memory.
        if len(self.known) < _KNOWN_TOPICS:
            self.known.add(topic)


def check_key(key: str) -> None:
    """Raise `InvalidMessage` unless this can be a key."""
    if not isinstance(key, str):
        raise InvalidMessage(f"key: must be str, not {_kind(key)}; write key=str(...).")
    if len(key) > MAX_KEY_LENGTH:
        raise InvalidMessage(
            f"key: {len(key)} characters; at most {MAX_KEY_LENGTH} fit. Use an id."
        )
    measure("key", key)


def check_value(value: str | bytes, limit: int) -> None:
    """Raise `InvalidMessage` unless the value can be stored and sent."""
    size = measure("value", value) if isinstance(value, str) else len(value)
    if size > limit:
        raise InvalidMessage(
            f"value: {size} bytes are more than MAX_VALUE_BYTES ({limit}). Send a "
            "reference to the data, or raise the setting and the topic's "
            "max.message.bytes."
        )


def check_partition(partition: int | None) -> None:
    """Raise `InvalidMessage` unless this can be a partition."""
    if partition is None:
        return
    if not isinstance(partition, int) or isinstance(partition, bool):
        raise InvalidMessage(f"partition: must be int, not {_kind(partition)}.")
    if not 0 <= partition <= MAX_PARTITION:
        raise InvalidMessage(
            f"partition: {partition} must be between 0 and {MAX_PARTITION}."
        )


def split_headers(headers: Headers | None) -> tuple[list[str], list[str]]:
    """
    Return the names and the values of the headers.

    Raises:
        InvalidMessage: a name or a value breaks a limit.
    """
    if not headers:
        return [], []
    # Most are a dict: to ask what else is a mapping takes longer.
    pairs = headers.items() if isinstance(headers, (dict, Mapping)) else headers
    names: list[str] = []
    values: list[str] = []
    size = 0
    for pair in pairs:
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
    """Check a header's name and measure it; an application has few of them."""
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
        what: it is called so in an error.
        of: a name to show behind that.

    Raises:
        InvalidMessage: PostgreSQL or UTF-8 cannot hold it.
    """
    if "\0" in text:
        raise InvalidMessage(
            f"{_called(what, of)}: holds a NUL character, which PostgreSQL cannot "
            "store as text; remove it, or pass a value as bytes."
        )
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        # Its own message would show the text.
        raise InvalidMessage(
            f"{_called(what, of)}: holds a lone surrogate, which UTF-8 cannot encode; "
            "decode the source of the text with another error handler."
        ) from None


def shown(text: str) -> str:
    """Return the start of a text that came from outside, safe to print."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _kind(value: object) -> str:
    return type(value).__name__


def _called(what: str, of: str) -> str:
    return f"{what} {shown(of)}" if of else what
