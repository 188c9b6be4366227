"""
Idempotency keys, and the handle of the block that runs under a claimed key.

Shared by `once()`, which keeps keys in a table, and `apply_once()`, which
keeps them in the entity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias
from uuid import UUID

from ..exceptions import ConsumingError, InvalidKey, RepeatUnnoticed
from ..message.incoming import ConsumedMessage
from ..models.processed_message import CONSUMER_LENGTH, KEY_LENGTH

Keyed: TypeAlias = ConsumedMessage | str | UUID
"""A message, or any key that is unique among those of one consumer."""


class Run:
    """The handle of a block: whether it runs first, and its response."""

    def __init__(
        self, *, is_first: bool, response: Any, save: Callable[[Any], None]
    ) -> None:
        self._is_first = is_first
        self._save = save
        self._was_asked = False
        self.response = response
        """The response of the first run, after JSON: tuples are lists and so on."""

    @property
    def is_first(self) -> bool:
        """Whether this is the first run, so the effects are to be applied."""
        self._was_asked = True
        return self._is_first

    def respond(self, response: Any) -> None:
        """Keep a response for repeats; None keeps nothing."""
        if not self._is_first:
            raise ConsumingError("A repeat cannot respond: the first response is kept.")
        if response is not None:
            self._save(response)
        self.response = response

    def require_asked(self, what: str) -> None:
        """Raise `RepeatUnnoticed` unless the block has read `is_first`."""
        if not self._was_asked:
            raise RepeatUnnoticed(
                f"The block of {what} did not check `run.is_first` and was rolled "
                "back: start it with `if run.is_first:`."
            )


def checked_key(source: Keyed) -> str:
    """
    Return the key of a message, or the key itself.

    Raises:
        InvalidKey: it is not a key, or is empty, too long or not printable.
    """
    identity = source.identity if isinstance(source, ConsumedMessage) else source
    if not isinstance(identity, str | UUID):
        # str(None) would give all messages without a key the same one.
        raise InvalidKey(
            f"The key must be a message, a str or a UUID, not {type(identity).__name__}"
            "; return str(...) of what is unique in each message."
        )
    return _checked("key", str(identity), KEY_LENGTH)


def checked_consumer(name: str) -> str:
    """
    Return the name of a consumer.

    Raises:
        InvalidKey: it is empty, too long or not printable.
    """
    return _checked("consumer", name, CONSUMER_LENGTH)


def _checked(what: str, text: str, limit: int) -> str:
    size = len(text.encode(errors="surrogatepass"))
    if not text or size > limit or "\0" in text or not text.isprintable():
        raise InvalidKey(
            f"The {what} has {size} bytes; it must be printable text of 1 to "
            f"{limit} bytes."
        )
    return text
