"""
Claims: their keys, the handle of the block that runs, and whether it can commit.

Keys and handle are shared by `once()`, which keeps keys in a table, and
`apply_once()`, which keeps them in the entity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db.backends.base.base import BaseDatabaseWrapper

from ..exceptions import ConsumingError, ErrorSwallowed, InvalidKey, RepeatUnnoticed
from ..message.incoming import ConsumedMessage
from ..models.processed_message import CONSUMER_LENGTH, KEY_LENGTH

Keyed: TypeAlias = ConsumedMessage | str | UUID
"""A message, or any key that is unique among those of one consumer."""

_FAILED: Final = "INERROR"
"""libpq's status of a transaction after a failed statement."""


class OpeningClaim(Protocol):
    """Opens the transaction of an atomic block with a claim, to save round trips."""

    def __call__(
        self,
        connection: BaseDatabaseWrapper,
        consumer: str,
        key: str,
        *,
        idle_timeout: float,
    ) -> bool | None:
        """Return whether the key is new; None: nothing was done, claim it otherwise."""


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
        """
        Keep a response for repeats; None keeps nothing.

        Raises:
            ConsumingError: This is a repeat.
        """
        if not self._is_first:
            raise ConsumingError("A repeat cannot respond: the first response is kept.")
        if response is not None:
            self._save(response)
        self.response = response

    async def arespond(self, response: Any) -> None:
        """Do the same in an `async with` block."""
        await sync_to_async(self.respond)(response)

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
            "; use str(...) of what is unique in each message."
        )
    return _checked("key", str(identity), KEY_LENGTH)


def checked_consumer(name: str) -> str:
    """
    Return the name of a consumer.

    Raises:
        InvalidKey: it is not text, or is empty, too long or not printable.
    """
    if not isinstance(name, str):
        raise InvalidKey(f"The consumer must be a str, not {name!r}; give it a name.")
    return _checked("consumer", name, CONSUMER_LENGTH)


def require_committable(connection: BaseDatabaseWrapper) -> None:
    """
    Raise if a commit would silently roll back.

    After a database error inside the transaction, PostgreSQL can only roll it
    back, even if the error was caught. Django, or else PostgreSQL itself, then
    turns the commit into a rollback without an error.

    Raises:
        ErrorSwallowed: an error was caught, or `set_rollback()` was called.
    """
    driver = connection.connection
    has_failed = driver is not None and driver.info.transaction_status.name == _FAILED
    if connection.needs_rollback or has_failed:
        raise ErrorSwallowed(
            "The transaction cannot be committed: a database error was caught inside "
            "it, or set_rollback() was called. Put statements that may fail into their "
            "own atomic() and catch the error around it, or let the error propagate."
        )


def _checked(what: str, text: str, limit: int) -> str:
    size = len(text.encode(errors="surrogatepass"))
    if not text or size > limit or "\0" in text or not text.isprintable():
        raise InvalidKey(
            f"The {what} has {size} bytes; it must be printable text of 1 to "
            f"{limit} bytes."
        )
    return text
