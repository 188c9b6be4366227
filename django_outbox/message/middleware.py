"""
What an application does with every message, in one place: the setting MIDDLEWARE.

A middleware adds headers, encrypts values, measures. Its methods are called at the
three places that every message passes: where it is written, where the harvester sends
it, and where `runconsumer` hands it to a handler. Independent of Django.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import chain
from typing import Final, TypeAlias

from ..exceptions import ConfigurationError, ConsumingError, StashError
from .incoming import ConsumedMessage
from .outgoing import Message
from .record import UNREADABLE, Record

Handle: TypeAlias = Callable[[ConsumedMessage], None]


class Middleware:
    """
    The base class; override what you need.

    One object serves a whole process, on any of its threads. `stash` and `produce` are
    called from the first middleware to the last, `consume` from the last to the first,
    so that what was wrapped last is unwrapped first.
    """

    def stash(self, message: Message) -> Message:
        """
        Return what is written, in the caller's transaction.

        Its value is what would be stored: text, bytes, or None for a tombstone; its
        headers are a list of pairs. The message is a copy, which may be changed, and
        what is returned is checked like any other. An error fails the stash.
        """
        return message

    def produce(self, record: Record) -> Record:
        """
        Return what is sent, with another value or other headers.

        Called by the harvester for each record that it has read, before it is sent;
        again for each attempt. An error is a failed delivery: the key waits, or the
        record is parked, as POISON_POLICY says. Never wait here: all records do.
        """
        return record

    def consume(self, message: ConsumedMessage, handle: Handle) -> None:
        """
        Call `handle` with the message that the handler gets.

        `handle` runs the transaction of the handler, claim and commit included; in a
        batch the commit follows the last message. For a repeat it runs no handler. An
        error is a failed attempt.
        """
        handle(message)


def load(names: Sequence[str]) -> tuple[Middleware, ...]:
    """
    Return the object of each class, given by its dotted path.

    Raises:
        ConfigurationError: one cannot be imported or made, or is no `Middleware`.
    """
    for name in names:
        if not isinstance(name, str):
            raise ConfigurationError(
                f"MIDDLEWARE: {name!r} must be the dotted path of a class, as text."
            )
    return tuple(map(_make, names))


@cache
def _make(name: str) -> Middleware:
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as exc:
        raise ConfigurationError(f"MIDDLEWARE: cannot import {name!r}: {exc}") from exc
    if not (isinstance(found, type) and issubclass(found, Middleware)):
        raise ConfigurationError(
            f"MIDDLEWARE: {name} must be a subclass of django_outbox.Middleware."
        )
    try:
        return found()
    except Exception as exc:
        raise ConfigurationError(
            f"MIDDLEWARE: {name}() raised {type(exc).__name__}: {exc}"
        ) from exc


def overriding(middleware: Sequence[Middleware], method: str) -> list[Middleware]:
    """Return those that do something at this place, in their order."""
    own = getattr(Middleware, method)
    return [one for one in middleware if getattr(type(one), method) is not own]


def stash_hook(
    middleware: Sequence[Middleware],
) -> Callable[[Message], Message] | None:
    """
    Return what passes a message through `stash` of each; None: nothing has to.

    It raises `StashError` when one of them returns no message.
    """
    hooks = overriding(middleware, "stash")
    return partial(_stashed, hooks) if hooks else None


def _stashed(middleware: Sequence[Middleware], message: Message) -> Message:
    for one in middleware:
        returned = one.stash(message)
        if not isinstance(returned, Message):
            raise StashError(
                f"MIDDLEWARE: {_name(one)}.stash() must return a Message, not "
                f"{type(returned).__name__}."
            )
        message = returned
    return message


def produced(middleware: Sequence[Middleware], record: Record) -> Record:
    """Pass a record through `produce` of each; after an error it is poison."""
    if record.header_keys[:1] == [UNREADABLE]:
        return record
    changed = record
    for one in middleware:
        try:
            changed = one.produce(changed)
            if not _is_same(changed, record):
                reason = "changed more than value and headers"
                return _unproducible(record, one, reason)
            if not _can_be_sent(changed):
                reason = "returned no text or bytes, or no lists of headers"
                return _unproducible(record, one, reason)
        except Exception as error:  # noqa: BLE001  # an application raises anything
            # Its text may have a part of the payload.
            return _unproducible(record, one, f"raised {type(error).__name__}")
    return changed


_FIXED: Final = tuple(
    Record._fields.index(name)
    for name in (
        *("id", "topic", "key", "partition"),
        *("message_id", "created_at", "cluster_id", "attempts"),
    )
)


def _is_same(changed: object, record: Record) -> bool:
    return isinstance(changed, Record) and all(changed[n] == record[n] for n in _FIXED)


def _can_be_sent(record: Record) -> bool:
    headers = (record.header_keys, record.header_values)
    is_sound = isinstance(record.value, str | bytes | None) and all(
        isinstance(part, list) for part in headers
    )
    texts = [record.value, *chain(*headers)] if is_sound else []
    for text in texts:
        if isinstance(text, str) and not text.isascii():
            # It raises for half a surrogate pair. The client would end the process.
            text.encode()
    return is_sound


def _unproducible(record: Record, one: Middleware, reason: str) -> Record:
    headers = [UNREADABLE, f"MIDDLEWARE: {_name(one)}.produce() {reason}"]
    return record._replace(value=None, header_keys=headers, header_values=[])


def handle_within(
    middleware: Sequence[Middleware], message: ConsumedMessage, handle: Handle
) -> None:
    """
    Have a message handled within `consume` of each.

    Raises:
        ConsumingError: one of them has not called its `handle`, or kept its error.
    """
    is_handled = False

    def innermost(message: ConsumedMessage) -> None:
        nonlocal is_handled
        handle(message)
        is_handled = True

    wrapped: Handle = innermost
    for one in middleware:
        wrapped = _within(one, wrapped)
    wrapped(message)
    if not is_handled:
        names = ", ".join(map(_name, middleware))
        raise ConsumingError(
            f"MIDDLEWARE: consume() of {names} must call handle(), and let its errors "
            "through: a message counts as handled when it returns."
        )


def _within(one: Middleware, handle: Handle) -> Handle:
    return lambda message: one.consume(message, handle)


def _name(one: Middleware) -> str:
    return type(one).__qualname__
