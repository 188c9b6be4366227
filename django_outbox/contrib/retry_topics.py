"""
Retry topics: a message that keeps failing is handled again later, and holds up nobody.

    orders ── fails ─▶ orders.billing.retry-1 ── fails ─▶ orders.billing.retry-2 ── …
                       handled after a minute             after an hour      orders.dlt

The same consumer group reads all of these topics, so no further process is needed, and
a message has its effects once, in whichever of them it succeeds. A partition whose
first message is not due waits, and the process goes on with its other partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final, TypeVar

from ..conf import settings
from ..consuming.handlers import consumer
from ..exceptions import ConfigurationError
from ..message.limits import shown

_HandlerT = TypeVar("_HandlerT", bound=Callable[..., Any])

LONGEST_TOPIC: Final = 200
"""Characters of a topic's name: it is a part of longer names, and of message ids."""


def retry_topic(topic: str, group: str, number: int) -> str:
    """Return the name of a group's retry topic, numbered from 1."""
    return f"{topic}.{group}.retry-{number}"


def retried(
    topic: str,
    *,
    group: str,
    delays: Sequence[timedelta],
    attempts: int = 1,
    dead_letters: str | None = None,
    **options: Any,
) -> Callable[[_HandlerT], _HandlerT]:
    """
    Declare a handler as `@consumer` does, with a retry topic for each delay.

        @retried("orders", group="billing", delays=[timedelta(minutes=1)])
        def charge(message: ConsumedMessage) -> None: ...

    A message that fails goes to the first retry topic, is handled again there when the
    delay is over, goes to the next one when it fails again, and at last to the dead
    letter topic. Its key loses its order. The decorator returns the function unchanged.

    Args:
        topic: The Kafka topic.
        group: The consumer group; it reads the retry topics, too.
        delays: How long a message waits before each retry, in order.
        attempts: Failed attempts until a message goes on from one topic to the next.
            The process waits between them, with all its partitions.
        dead_letters: Topic for messages that fail there too; by default the topic's
            name with DEAD_LETTER_SUFFIX.
        options: `batch`, `key` and `transforms`, as of `@consumer`. A `key` must follow
            from the key, the value and the headers of a message.

    Raises:
        ConfigurationError: The declaration is invalid or contradicts another one.
    """
    if not isinstance(topic, str):
        raise ConfigurationError(
            f"@retried: {topic!r} is not a Kafka topic name; pass one name as a str. "
            "Of a declared topic that is its attribute `name`."
        )
    if not isinstance(delays, Sequence):
        raise ConfigurationError(
            f"{shown(topic)}: delays={delays!r} must be a list of timedeltas, for "
            "instance delays=[timedelta(minutes=1)]."
        )
    are_times = all(isinstance(delay, timedelta) for delay in delays)
    if not (are_times and delays and min(delays) > timedelta()):
        raise ConfigurationError(
            f"{shown(topic)}: delays={[*map(str, delays)]} must be one or more "
            "timedeltas above zero."
        )
    if len(topic) > LONGEST_TOPIC:
        raise ConfigurationError(
            f"{shown(topic)}: a topic with retry topics has a name of at most "
            f"{LONGEST_TOPIC} characters."
        )

    def declare(handler: _HandlerT) -> _HandlerT:
        numbers = range(1, len(delays) + 1)
        last = dead_letters or topic + settings.DEAD_LETTER_SUFFIX
        names = [topic, *(retry_topic(topic, group, n) for n in numbers), last]
        waits = [timedelta(), *delays]
        for (name, behind), delay in zip(pairwise(names), waits, strict=True):
            consumer(
                name,
                group=group,
                dead_letters=behind,
                attempts=attempts,
                delay=delay,
                **options,
            )(handler)
        return handler

    return declare
