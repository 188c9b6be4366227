"""
Runs one message in a database transaction: its claim, effects and offset.

With `OFFSETS = "database"` the offset is part of that transaction, which
refuses a process that lost its partition without noticing, and one whose database
was restored. Kafka gets a copy of the offset for tools that monitor the group there.
"""

from __future__ import annotations

import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Collection,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from django.db import (
    OperationalError,
    connections,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper

from ..exceptions import (
    ClaimHeld,
    ConsumingError,
    KafkaError,
    OffsetsLost,
    sqlstate_of,
)
from ..idempotence.claims import require_committable
from ..idempotence.once import Once
from ..message.incoming import ConsumedMessage, TopicPartition
from ..message.middleware import Middleware, handle_within, overriding
from ..message.outgoing import Message
from ..models import ConsumerOffset, OffsetQuerySet
from ..models.missing_tables import OutboxTables
from ..observability.tracing import ProcessSpan
from ..postgres.opening_claim import open_with_claim
from .handler_exits import exits_as_errors
from .handlers import Group, Subscription
from .ports import PartitionStates
from .stored_offsets import StoredOffset, start_of

_TIMED_OUT: Final = frozenset({"55P03", "57014"})
"""SQLSTATEs of a lock or a statement that took longer than the server allows."""

MAX_BATCH_TIME: Final = 1.0
"""Seconds after which a batch takes no further message, so that the group is served."""


class _Passed(Exception):
    """The stored offset is past this message: roll the claim back."""


class TransactionalHandler:
    """
    The database of one group's handlers; for one thread.

    Args:
        group: whose handlers.
        alias: the database.
        keeps_offsets: whether the database keeps the offsets too.
        partitions: says whether stored offsets still belong to their partitions.
        idle_timeout: idle-in-transaction time-out for handlers, in seconds:
            PostgreSQL ends the transaction of a frozen process after it.
        is_traced: whether each attempt has a span.
        middleware: what each message passes before its handler.
    """

    def __init__(
        self,
        group: Group,
        *,
        alias: str,
        keeps_offsets: bool,
        partitions: PartitionStates,
        idle_timeout: float,
        is_traced: bool = True,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._is_traced = is_traced
        self._middleware = overriding(middleware, "consume")
        self._partitions = partitions
        self._topic_ids: dict[str, str] = {}
        self._next_offsets: dict[TopicPartition, int] = {}
        """As they were last read or committed."""
        self._idle_timeout = idle_timeout
        self._group = group
        self._alias = alias
        self._tables = OutboxTables(alias)
        self._keeps_offsets = keeps_offsets

    def apply(self, message: ConsumedMessage) -> bool:
        """Run the handler unless this is a repeat; return whether it ran."""
        with self._span(message) as span:
            try:
                is_first = self._run(message)
            except _Passed:
                self._require_rival(message)
                is_first = False
            else:
                self._committed(message)
            span.ran(is_first=is_first)
        return is_first

    def apply_all(self, messages: Sequence[ConsumedMessage]) -> list[bool]:
        """
        Run the handlers of messages in one transaction.

        Ends it early when handlers are slow, so that the group is served in time.

        Returns:
            for each message that was done, from the first one on, whether it ran.

        Raises:
            Exception: one of them failed, and the effects of all were rolled back.
        """
        until = time.monotonic() + MAX_BATCH_TIME
        ran: list[bool] = []
        with transaction.atomic(using=self._alias):
            for message in messages:
                with self._span(message) as span:
                    is_first = self._run(message, has_savepoint=False)
                    # A middleware may have caught an error behind the claim.
                    require_committable(connections[self._alias])
                    span.ran(is_first=is_first)
                ran.append(is_first)
                if time.monotonic() >= until:
                    break
        self._committed(*messages[: len(ran)])
        return ran

    def _span(self, message: ConsumedMessage) -> ProcessSpan:
        traced = message if self._is_traced else None
        return ProcessSpan(traced, consumer=self._group.name, is_group=True)

    def _run(self, message: ConsumedMessage, *, has_savepoint: bool = True) -> bool:
        is_first = False

        def handle(message: ConsumedMessage) -> None:
            nonlocal is_first
            is_first = self._claimed(message, has_savepoint=has_savepoint)

        handle_within(self._middleware, message, handle)
        return is_first

    def _claimed(self, message: ConsumedMessage, *, has_savepoint: bool) -> bool:
        subscription = self._group.of(message.topic)
        source = subscription.key(message) if subscription.key else message
        claim = Once(
            source,
            consumer=self._group.name,
            using=self._alias,
            idle_timeout=self._idle_timeout,
            has_savepoint=has_savepoint,
            opening_claim=open_with_claim,
        )
        with ExitStack() as stack:
            with _waiting():
                run = stack.enter_context(claim)
            self._step_past(message)
            if run.is_first:
                with exits_as_errors(subscription.name):
                    _require_done(subscription, subscription.handle(message))
                _let_callbacks_fail(connections[self._alias])
            return run.is_first

    def skip(self, message: ConsumedMessage) -> None:
        """Advance past a message without processing or claiming it."""
        try:
            self._step_past(message)
        except _Passed:
            self._require_rival(message)
        else:
            self._committed(message)

    def start_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """
        Return the stored offsets of those partitions that have one.

        Raises:
            StaleOffset: one of them does not belong to its partition any more.
        """
        if not self._keeps_offsets:
            return {}
        found = self._partitions.look(partitions)
        self._topic_ids.update({at[0]: state.topic_id for at, state in found.items()})
        with self._tables:
            stored = self._offsets().positions(self._group.name)
        for at in partitions:
            self._next_offsets[at] = stored[at][0] if at in stored else 0
        return {
            at: start_of(
                at,
                StoredOffset(*stored[at]),
                found.get(at),
                group=self._group.name,
            )
            for at in partitions
            if at in stored
        }

    def settle(self, ends: Mapping[TopicPartition, int]) -> None:
        """
        Store the ends of partitions whose messages are all done.

        Transaction markers may follow the last message. Once Kafka has deleted
        both, the offset after the message would look like lost messages.

        Raises:
            OffsetsLost: the database has gone back.
        """
        if not self._keeps_offsets:
            return
        for (topic, partition), end in ends.items():
            if end > 0 and self._advance(topic, partition, end - 1):
                self._next_offsets[topic, partition] = end
        self._require_no_loss(ends)

    def rewind(self, starts: Mapping[TopicPartition, int]) -> None:
        """Replace the stored offsets of these partitions, where they have one."""
        if self._keeps_offsets:
            with self._tables:
                for at, start in starts.items():
                    self._next_offsets[at] = max(start, 0)
                    self._offsets().rewind(self._group.name, *at, to=max(start, 0))

    def ping(self) -> None:
        """Raise unless the database answers."""
        with self._tables:
            self._offsets().exists()

    def _step_past(self, message: ConsumedMessage) -> None:
        position = (message.topic, message.partition, message.offset)
        if self._keeps_offsets and not self._advance(*position):
            raise _Passed

    def _committed(self, *messages: ConsumedMessage) -> None:
        for message in messages:
            self._next_offsets[message.topic_partition] = message.offset + 1

    def _require_rival(self, message: ConsumedMessage) -> None:
        """
        Check that another process may have advanced past this message.

        Raises:
            OffsetsLost: none did; the database has gone back.
            StaleOffset: none did; the topic was created again while it was read.
        """
        self._require_no_loss([message.topic_partition])
        # If the cluster does not answer, the next assignment checks again.
        with suppress(KafkaError):
            self.start_offsets([message.topic_partition])

    def _require_no_loss(self, partitions: Collection[TopicPartition]) -> None:
        with self._tables:
            stored = self._offsets().positions(self._group.name)
        for at in partitions:
            known = self._next_offsets.get(at, 0)
            found, _topic_id = stored.get(at, (0, ""))
            if found < known:
                raise OffsetsLost(
                    f"OFFSETS: group {self._group.name!r} was at offset {known} of "
                    f"{at[0]}/{at[1]}, and the database says {found}: it was restored, "
                    "or a server that lacked the last commits has taken over. The next "
                    "start of this process reads on from there."
                )

    def _advance(self, topic: str, partition: int, offset: int) -> bool:
        topic_id = self._topic_ids.get(topic, "")
        with self._tables, _waiting():
            return self._offsets().advance(
                *(self._group.name, topic, partition, offset),
                since=self._next_offsets.get((topic, partition), 0),
                topic_id=topic_id,
            )

    def _offsets(self) -> OffsetQuerySet:
        return ConsumerOffset.objects.using(self._alias)


class NoDatabase:
    """Stands in for `TransactionalHandler` in a group that only transforms."""

    def start_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return nothing: partitions start at their committed offsets."""
        return {}

    def rewind(self, starts: Mapping[TopicPartition, int]) -> None:
        """Do nothing: offsets are in Kafka only."""

    def settle(self, ends: Mapping[TopicPartition, int]) -> None:
        """Do nothing: offsets are in Kafka only."""

    def ping(self) -> None:
        """Do nothing: there is no database to reach."""


@contextmanager
def _waiting() -> Iterator[None]:
    """Tell the time-out of a wait for another process from errors of a handler."""
    try:
        yield
    except OperationalError as error:
        if sqlstate_of(error) in _TIMED_OUT:
            raise ClaimHeld(f"Another process holds the message: {error}") from error
        raise


def _require_done(subscription: Subscription, returned: object) -> None:
    """Raise if the handler returned something that would have to run, or to be sent."""
    name, kind = subscription.name, type(returned).__name__
    if isinstance(returned, Awaitable | Generator | AsyncGenerator | map | filter):
        raise ConsumingError(
            f"{name} returned a {kind} that nothing runs. Only handlers with "
            "transforms=True may yield messages; a decorator of an async handler must "
            "be async itself."
        )
    several = returned if isinstance(returned, list | tuple) else [returned]
    if any(isinstance(one, Message) for one in several):
        raise ConsumingError(
            f"{name} returned messages, which nothing sends. Stash them, or declare "
            "the handler with transforms=True."
        )


def _let_callbacks_fail(connection: BaseDatabaseWrapper) -> None:
    """
    Let Django log an error of what follows the commit, and run the rest.

    Raised behind the commit, it would be taken for a failure of the handler, whose
    effects are there.
    """
    connection.run_on_commit = [
        (savepoints, call, True)  # type: ignore[misc]
        for savepoints, call, *_ in connection.run_on_commit
    ]
