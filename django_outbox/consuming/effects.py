"""
One message into the database: its effects, its claim and perhaps its offset.

All of it is one transaction. With `OFFSETS = "database"` the offset is part of
it, so that a process that has lost its partition without knowing it is
refused; Kafka gets a copy for those who watch the group there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from django.db import Error, InterfaceError, OperationalError

from ..exceptions import ConsumingError, KafkaError, TableMissing
from ..idempotence.once import Once
from ..message.incoming import BEGINNING, ConsumedMessage, TopicPartition
from ..models import ConsumerOffset, OffsetQuerySet
from ..models.missing_tables import OutboxTables
from .handlers import Group, Subscription
from .ports import PartitionStates
from .stored_offsets import StoredOffset, start_of

_ABSENT: Final = frozenset(
    {
        "25006",  # read-only: the server that was asked is no primary any more
        "53100",  # its disk is full
        "53300",  # it has too many connections
        "57P01",  # it shuts down, or somebody ended the connection
        "57P02",  # it has crashed
        "57P03",  # it is starting
        "57P05",  # it ended an idle session
    }
)
"""SQLSTATEs, beside class 08, of a server that cannot serve now."""

_DEEPEST: Final = 10
"""Causes of an error that are looked at."""


class _Passed(Exception):
    """Somebody has gone past this offset: the claim must go, too."""


class TransactionalHandler:
    """
    The database of one group's handlers; for one thread.

    Args:
        group: whose handlers.
        alias: the database.
        keeps_offsets: whether offsets are kept there, too.
        partitions: asked whether stored offsets still belong to their partitions.
        idle_timeout: seconds for which a handler may run no statement;
            then its process counts as frozen, or its machine as gone.
    """

    def __init__(
        self,
        group: Group,
        *,
        alias: str,
        keeps_offsets: bool,
        partitions: PartitionStates,
        idle_timeout: float,
    ) -> None:
        self._partitions = partitions
        self._topic_ids: dict[str, str] = {}
        self._idle_timeout = idle_timeout
        self._group = group
        self._alias = alias
        self._tables = OutboxTables(alias)
        self._keeps_offsets = keeps_offsets

    def apply(self, message: ConsumedMessage) -> bool:
        """Run the handler, unless this is a repeat; return whether it ran."""
        subscription = self._group.of(message.topic)
        source = subscription.key(message) if subscription.key else message
        claim = Once(
            source,
            consumer=self._group.name,
            using=self._alias,
            idle_timeout=self._idle_timeout,
        )
        try:
            with claim as run:
                self._step_past(message)
                if run.is_first:
                    _require_done(subscription, subscription.handle(message))
                return run.is_first
        except _Passed:
            self._require_rival(message)
            return False

    def skip(self, message: ConsumedMessage) -> None:
        """Go past a message that is not to be processed, without a claim."""
        with suppress(_Passed):
            self._step_past(message)

    def starts(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """
        Where to start, for those of these places that have a stored offset.

        Raises:
            StaleOffset: one of them does not belong to its partition any more.
        """
        if not self._keeps_offsets:
            return {}
        found = self._partitions.look(places)
        self._topic_ids.update({place[0]: found[place].topic_id for place in found})
        with self._tables:
            stored = self._offsets().positions(self._group.name)
        return {
            place: start_of(
                place,
                StoredOffset(*stored[place]),
                found.get(place),
                group=self._group.name,
            )
            for place in places
            if place in stored
        }

    def settle(self, ends: Mapping[TopicPartition, int]) -> None:
        """
        Store the ends of partitions that have been read and done completely.

        Behind the last message may be marks of transactions. Once Kafka has deleted
        both, the offset behind the message would look like one of a loss.
        """
        if not self._keeps_offsets:
            return
        for (topic, partition), end in ends.items():
            if end > 0:
                self._advance(topic, partition, end - 1)

    def rewind(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Let these places be read from their beginnings; return those starts."""
        if self._keeps_offsets:
            with self._tables:
                for topic, partition in places:
                    self._offsets().rewind(self._group.name, topic, partition)
        return dict.fromkeys(places, BEGINNING)

    def ping(self) -> None:
        """Raise unless the database answers."""
        with self._tables:
            self._offsets().exists()

    def _step_past(self, message: ConsumedMessage) -> None:
        place = (message.topic, message.partition, message.offset)
        if self._keeps_offsets and not self._advance(*place):
            raise _Passed

    def _require_rival(self, message: ConsumedMessage) -> None:
        """
        Raise unless it may be another process that has gone past this message.

        Raises:
            StaleOffset: it was none; the topic was created again while it was read.
        """
        # When the cluster does not answer: the next assignment asks again.
        with suppress(KafkaError):
            self.starts([message.place])

    def _advance(self, topic: str, partition: int, offset: int) -> bool:
        topic_id = self._topic_ids.get(topic, "")
        with self._tables:
            return self._offsets().advance(
                self._group.name, topic, partition, offset, topic_id=topic_id
            )

    def _offsets(self) -> OffsetQuerySet:
        return ConsumerOffset.objects.using(self._alias)


class NoDatabase:
    """In the place of `TransactionalHandler` for a group that only transforms."""

    def starts(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Start where the group has committed."""
        return {}

    def rewind(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Start at the beginnings."""
        return dict.fromkeys(places, BEGINNING)

    def settle(self, ends: Mapping[TopicPartition, int]) -> None:
        """Nothing is stored here."""

    def ping(self) -> None:
        """There is nothing to reach."""


def _require_done(subscription: Subscription, returned: object) -> None:
    """Raise if the handler has only made something that nobody will run."""
    if isinstance(returned, Awaitable | Generator | AsyncGenerator):
        raise ConsumingError(
            f"{subscription.name} has returned a {type(returned).__name__} and done "
            "nothing. With transforms=True it may yield messages; a decorator of an "
            "async function must be async, too."
        )


def is_away(error: BaseException) -> bool:
    """
    Whether a database was lost or cannot be used, so that no message is at fault.

    The handler may have wrapped what the database said.
    """
    told: BaseException | None = error
    for _ in range(_DEEPEST):
        if isinstance(told, TableMissing) or (
            isinstance(told, Error) and _tells_of_absence(told)
        ):
            return True
        told = told and (told.__cause__ or told.__context__)
    return False


def _tells_of_absence(error: Error) -> bool:
    state: str | None = getattr(error.__cause__, "sqlstate", None)
    if state is None:
        # The client itself has found that there is no connection.
        return isinstance(error, OperationalError | InterfaceError)
    return state.startswith("08") or state in _ABSENT
