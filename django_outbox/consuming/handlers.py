"""
The registry of handlers: `@consumer` declares one, `runconsumer` runs a group.

Handlers are in the module `consumers` of an installed app, which is imported
when a group is looked up. A handler is called with a `ConsumedMessage`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from asgiref.sync import async_to_sync
from django.utils.module_loading import autodiscover_modules

from ..exceptions import ConfigurationError, InvalidKey
from ..idempotence.claims import Keyed, checked_consumer
from ..idempotence.once import is_once
from ..message.incoming import ConsumedMessage
from ..message.limits import shown
from ..settings.field_types import has_type
from ..settings.rules import TOPIC_NAME

MODULE: Final = "consumers"
"""The module of an app that is searched for handlers."""

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One handler and its declaration."""

    topics: tuple[str, ...]
    group: str
    handle: Callable[[ConsumedMessage], Any]
    name: str
    """Its module and qualified name."""
    transforms: bool = False
    """Whether its only effects are the messages that it returns."""
    batch: int = 1
    """Most messages whose effects share one transaction."""
    key: Callable[[ConsumedMessage], Keyed] | None = None
    """Makes the idempotency key of a message; None = `ConsumedMessage.identity`."""
    dead_letters: str | None = None
    """The topic for messages that keep failing; None = the default name."""
    attempts: int | None = None
    """Failed attempts until a message goes there; None = CONSUMER_ATTEMPTS."""
    delay: timedelta = timedelta()
    """How old a message is when it is handled, at least."""


@dataclass(frozen=True, slots=True)
class Group:
    """The handlers of one consumer group, one for each topic."""

    name: str
    subscriptions: tuple[Subscription, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the group subscribes to."""
        return tuple(topic for s in self.subscriptions for topic in s.topics)

    @property
    def transforms(self) -> bool:
        """Whether its handlers only transform."""
        return self.subscriptions[0].transforms

    @property
    def batch(self) -> int:
        """Most messages whose effects share one transaction."""
        return min(s.batch for s in self.subscriptions)

    @property
    def delays(self) -> dict[str, float]:
        """The topics whose messages are handled later, and after how many seconds."""
        return {
            topic: subscription.delay.total_seconds()
            for subscription in self.subscriptions
            for topic in subscription.topics
            if subscription.delay
        }

    def of(self, topic: str) -> Subscription:
        """Return the handler of a topic."""
        return next(s for s in self.subscriptions if topic in s.topics)

    def dead_letter_topic(self, topic: str, suffix: str) -> str:
        """Return the dead letter topic for messages of this topic."""
        return self.of(topic).dead_letters or topic + suffix

    def last_dead_letter_topic(self, topic: str, suffix: str) -> str:
        """Return the dead letter topic behind all retries."""
        for _ in self.subscriptions:
            topic = self.dead_letter_topic(topic, suffix)
            if not self.is_retry(topic, suffix):
                break
        return topic

    def is_retry(self, topic: str, suffix: str) -> bool:
        """Whether a topic has dead letters of this group, which it handles later."""
        dead_letters = {self.dead_letter_topic(name, suffix) for name in self.topics}
        return topic in dead_letters and topic in self.delays


_subscriptions: Final[list[Subscription]] = []


def consumer(
    *topics: str,
    group: str,
    transforms: bool = False,
    batch: int = 1,
    key: Callable[[ConsumedMessage], Keyed] | None = None,
    dead_letters: str | None = None,
    attempts: int | None = None,
    delay: timedelta = timedelta(),
) -> Callable[[_Handler], _Handler]:
    """
    Declare that a function handles the messages of these topics.

        @consumer("orders", group="billing")
        def charge(message: ConsumedMessage) -> None: ...

    `manage.py runconsumer` calls it once for each message, inside a
    transaction. When it raises, the transaction rolls back and the message is
    retried. The decorator returns the function unchanged.

    Args:
        topics: Kafka topics; a group has one handler for each.
        group: The consumer group, whose name is also the `consumer` of the
            processed messages.
        transforms: The handler needs no database: it returns or yields
            `Message` objects, which are sent in one Kafka transaction with the offset.
        batch: Most messages that share one transaction. When one of them fails, all
            roll back and each runs again in a transaction of its own; so a handler
            with a batch has no effects outside of the database. The smallest batch
            of a group's handlers counts.
        key: Makes the idempotency key of a message, instead of its message id.
        dead_letters: Topic for messages that keep failing; by default the
            topic's name with DEAD_LETTER_SUFFIX.
        attempts: Failed attempts until a message goes there; by default
            CONSUMER_ATTEMPTS.
        delay: How old a message is when it is handled, at least. Its partition waits
            until then, others go on.

    Raises:
        ConfigurationError: The declaration is invalid or contradicts another one.
    """

    def register(handler: _Handler) -> _Handler:
        called = getattr(handler, "__qualname__", repr(handler))
        name = f"{handler.__module__}.{called}"
        if is_once(handler):
            raise ConfigurationError(
                f"{name}: remove @once; runconsumer applies it to each handler."
            )
        _check_callable(handler, name)
        try:
            checked_consumer(group)
        except InvalidKey as error:
            raise ConfigurationError(f"{name}: group: {error}") from error
        is_async = inspect.iscoroutinefunction(handler)
        subscription = Subscription(
            topics=topics,
            group=group,
            handle=async_to_sync(handler) if is_async else handler,
            name=name,
            transforms=transforms,
            batch=batch,
            key=key,
            dead_letters=dead_letters,
            attempts=attempts,
            delay=delay,
        )
        _check(subscription, _subscriptions)
        _subscriptions.append(subscription)
        return handler

    return register


def find_group(name: str | None) -> Group:
    """
    Import the handlers of all apps; return the named group, or the only one.

    Raises:
        ConfigurationError: No such group, or several and no name.
    """
    autodiscover_modules(MODULE)
    names = sorted({s.group for s in _subscriptions})
    if not names:
        raise ConfigurationError(
            f"No handlers found: declare one with @consumer in the module {MODULE} of "
            "an installed app."
        )
    if not name and len(names) > 1:
        raise ConfigurationError(f"Choose a group: --group {' | '.join(names)}.")
    chosen = name or names[0]
    found = tuple(s for s in _subscriptions if s.group == chosen)
    if not found:
        raise ConfigurationError(
            f"--group: no handler for {shown(chosen)}; choose one of "
            f"{', '.join(names)}."
        )
    return Group(chosen, found)


def group_of(
    handler: Callable[..., Any], topic: str, *, name: str | None = None
) -> Group:
    """
    Return the group of a declared handler, with this handler only.

    Args:
        topic: one of its topics.
        name: the group, if the handler is declared for several.

    Raises:
        ConfigurationError: it is not declared for the topic, or for several groups.
    """
    found = [
        subscription
        for subscription in _subscriptions
        if handler in _callables(subscription) and topic in subscription.topics
        if name in (None, subscription.group)
    ]
    called = getattr(handler, "__qualname__", repr(handler))
    if not found:
        raise ConfigurationError(
            f"{called} is not declared for {shown(topic)}"
            f"{f' in the group {name!r}' if name else ''}: add @consumer."
        )
    if len(found) > 1:
        names = ", ".join(sorted(subscription.group for subscription in found))
        raise ConfigurationError(f"{called} is of several groups, choose one: {names}.")
    return Group(found[0].group, (found[0],))


def _callables(subscription: Subscription) -> tuple[object, ...]:
    """Return what is called, and the function that was declared, if that is another."""
    handle = subscription.handle
    declared = getattr(handle, "awaitable", handle)
    return handle, declared, inspect.unwrap(declared)


def _check(new: Subscription, others: Iterable[Subscription]) -> None:
    if not new.topics:
        raise ConfigurationError(f"{new.name}: @consumer needs a topic.")
    for topic in (*new.topics, *filter(None, [new.dead_letters])):
        _check_topic(new, topic)
    if new.key is not None and not callable(new.key):
        raise ConfigurationError(
            f"{new.name}: key={new.key!r} must be a function that makes a key of a "
            "message, for instance key=lambda message: message.key_text()."
        )
    _check_numbers(new)
    if new.dead_letters in new.topics:
        raise ConfigurationError(
            f"{new.name}: a topic cannot be its own dead letter topic."
        )
    for other in others:
        if other.group != new.group:
            continue
        if shared := set(other.topics) & set(new.topics):
            raise ConfigurationError(
                f"{new.name}: {other.name} handles {min(shared)} in the group "
                f"{new.group!r} already; move one of them to another group."
            )
        if other.transforms != new.transforms:
            raise ConfigurationError(
                f"{new.name}: handlers of one group either all transform or none; "
                f"{other.name} differs. Move one of them to another group."
            )


def _check_callable(handler: Callable[..., Any], name: str) -> None:
    if inspect.isclass(handler):
        raise ConfigurationError(
            f"{name} is a class, and a call would only make an object: decorate a "
            "function, or pass a method of an object to consumer(...)."
        )
    try:
        # A wrapper may take other arguments than what it wraps.
        signature = inspect.signature(handler, follow_wrapped=False)
    except (TypeError, ValueError):
        # Written in C, or a test's double.
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigurationError(
            f"{name} must take one argument, the message: {error}."
        ) from error


def _check_topic(new: Subscription, topic: object) -> None:
    if isinstance(topic, str):
        if TOPIC_NAME.match(topic):
            return
        raise ConfigurationError(
            f"{new.name}: {shown(topic)} is not a Kafka topic name."
        )
    if isinstance(topic, list | tuple | set | frozenset):
        hint = "pass each topic as an argument of its own: @consumer(*topics, ...)"
    elif hasattr(topic, "consumer") and hasattr(topic, "name"):
        hint = f"pass its .name, {topic.name!r}, or decorate with its .consumer(...)"
    else:
        hint = "pass the topic's name as a str"
    raise ConfigurationError(
        f"{new.name}: {topic!r} is not a Kafka topic name; {hint}."
    )


def _check_numbers(new: Subscription) -> None:
    numbers = {"batch": new.batch}
    if new.attempts is not None:
        numbers["attempts"] = new.attempts
    for name, number in numbers.items():
        if not (has_type(number, "int") and number >= 1):
            raise ConfigurationError(
                f"{new.name}: {name}={number!r} must be a whole number, at least 1."
            )
    if not isinstance(new.delay, timedelta):
        raise ConfigurationError(
            f"{new.name}: delay={new.delay!r} must be a timedelta, for instance "
            "timedelta(seconds=30)."
        )
    if new.delay < timedelta():
        raise ConfigurationError(f"{new.name}: delay={new.delay} is negative.")
    if new.transforms and new.batch > 1:
        raise ConfigurationError(
            f"{new.name}: remove batch={new.batch}; the messages of a handler with "
            "transforms=True share Kafka transactions already."
        )
