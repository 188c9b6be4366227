"""Runs a handler on one message, as `runconsumer` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from django.db import transaction

from ..conf import settings
from ..consuming.effects import TransactionalHandler
from ..consuming.handlers import Group, group_of
from ..consuming.output import Output
from ..exceptions import ConfigurationError
from ..idempotence.once import alias_for
from ..message.incoming import (
    ConsumedMessage,
    OutgoingMessage,
    PartitionState,
    TopicPartition,
)
from ..message.middleware import load

Death: TypeAlias = Literal["before-commit", "after-commit"]
"""When the process of a consumer dies."""

_DEATHS: Final[tuple[Death, ...]] = get_args(Death)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRun:
    """What became of one message."""

    ran: bool
    """Whether the handler ran; False: the message had been processed before."""
    is_committed: bool = True
    """Whether the effects of the handler, or its output, are there to stay."""
    is_offset_committed: bool = True
    """Whether the offset was stored; otherwise Kafka delivers the message again."""
    output: tuple[OutgoingMessage, ...] = ()
    """What a handler with transforms=True has sent."""

    @property
    def is_repeat(self) -> bool:
        """Whether the message had been processed before."""
        return not self.ran


def run_consumer(
    handler: Callable[..., Any],
    message: ConsumedMessage,
    *,
    group: str | None = None,
    dies: Death | None = None,
    using: str | None = None,
) -> ConsumerRun:
    """
    Run a handler on a message, unless it has run before for this message.

    Args:
        handler: A function that is declared with `@consumer`.
        message: For instance one that `drain()` has returned.
        group: The consumer group, if the handler is declared for several.
        dies: When the process dies: `before-commit` rolls the effects back,
            `after-commit` leaves them and loses the offset.
        using: Alias of the database, as in `once()`.

    Raises:
        ConfigurationError: The handler is not declared for the message's topic, or
            `dies` has another value.
        ConsumingError: The handler breaks a rule of consumers.
        Exception: What the handler raises; its effects were rolled back.
    """
    if dies is not None and dies not in _DEATHS:
        known = " or ".join(map(repr, _DEATHS))
        raise ConfigurationError(f"dies={dies!r} must be {known}, or None.")
    found = group_of(handler, message.topic, name=group)
    if found.transforms:
        return _transform(found, message, dies)
    alias, is_first = alias_for(using), False
    effects = TransactionalHandler(
        found,
        alias=alias,
        # A message that was made by hand has no offset of its own.
        keeps_offsets=False,
        partitions=_NoPartitions(),
        # A test may wait in a debugger, in a transaction that the server would end.
        idle_timeout=0.0,
        is_traced=settings.TRACING,
        middleware=load(settings.MIDDLEWARE),
    )
    if dies != "before-commit":
        is_first = effects.apply(message)
        return ConsumerRun(ran=is_first, is_offset_committed=dies is None)
    with suppress(_Died), transaction.atomic(using=alias):
        is_first = effects.apply(message)
        raise _Died
    return ConsumerRun(ran=is_first, is_committed=False, is_offset_committed=False)


def _transform(
    group: Group, message: ConsumedMessage, dies: Death | None
) -> ConsumerRun:
    """Run a handler whose output and offset are one transaction of Kafka."""
    output = Output(settings.snapshot()).messages(group.of(message.topic), message)
    is_committed = dies != "before-commit"
    return ConsumerRun(
        ran=True,
        is_committed=is_committed,
        is_offset_committed=is_committed,
        output=tuple(output if is_committed else ()),
    )


class _Died(Exception):
    """The process has died: nothing is committed."""


class _NoPartitions:
    """Knows no partition, as offsets are not stored."""

    def look(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionState]:
        return {}
