"""
One message into the database: its effects, its claim and perhaps its offset.

All of it is one transaction. With `OFFSETS = "database"` the offset is part of
it, so that a process that has lost its partition without knowing it is
refused; Kafka gets a copy for those who watch the group there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from django.db import Error, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..consumed import BEGINNING, ConsumedMessage, Place
from ..models import ConsumerOffset, OffsetQuerySet
from .idempotence import Once
from .registry import Group


class _Passed(Exception):
    """Somebody has gone past this offset: the claim must go, too."""


class Effects:
    """
    The database of one group's handlers; for one thread.

    Args:
        group: whose handlers.
        alias: the database.
        keeps_offsets: whether offsets are kept there, too.
    """

    def __init__(self, group: Group, *, alias: str, keeps_offsets: bool) -> None:
        self._group = group
        self._alias = alias
        self._keeps_offsets = keeps_offsets

    def apply(self, message: ConsumedMessage) -> bool:
        """Run the handler, unless this is a repeat; return whether it ran."""
        subscription = self._group.of(message.topic)
        source = subscription.key(message) if subscription.key else message
        claim = Once(source, consumer=self._group.name, using=self._alias)
        try:
            with claim as run:
                self._step_past(message)
                if run.is_first:
                    subscription.handle(message)
                return run.is_first
        except _Passed:
            return False

    def skip(self, message: ConsumedMessage) -> None:
        """Go past a message that is not to be processed, without a claim."""
        with suppress(_Passed):
            self._step_past(message)

    def starts(self, places: Sequence[Place]) -> dict[Place, int]:
        """Where to start, for those of these places that have a stored offset."""
        if not self._keeps_offsets:
            return {}
        stored = self._offsets().positions(self._group.name)
        return {place: stored[place] for place in places if place in stored}

    def rewind(self, places: Sequence[Place]) -> dict[Place, int]:
        """Let these places be read from their beginnings; return those starts."""
        if self._keeps_offsets:
            for topic, partition in places:
                self._offsets().rewind(self._group.name, topic, partition)
        return dict.fromkeys(places, BEGINNING)

    def ping(self) -> None:
        """Raise unless the database answers."""
        self._offsets().exists()

    def _step_past(self, message: ConsumedMessage) -> None:
        place = (message.topic, message.partition, message.offset)
        if self._keeps_offsets and not self._offsets().advance(
            self._group.name, *place
        ):
            raise _Passed

    def _offsets(self) -> OffsetQuerySet:
        return ConsumerOffset.objects.using(self._alias)


class NoDatabase:
    """In the place of `Effects` for a group that only transforms."""

    def starts(self, places: Sequence[Place]) -> dict[Place, int]:
        """Start where the group has committed."""
        return {}

    def rewind(self, places: Sequence[Place]) -> dict[Place, int]:
        """Start at the beginnings."""
        return dict.fromkeys(places, BEGINNING)

    def ping(self) -> None:
        """There is nothing to reach."""


def is_away(error: BaseException) -> bool:
    """Whether a database is out of reach, so that no message is at fault."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    return not all(map(_answers, connections.all(initialized_only=True)))


def _answers(connection: BaseDatabaseWrapper) -> bool:
    try:
        connection.ensure_connection()
        return connection.is_usable()
    except Error:
        return False
