"""
Messages that a consumer keeps until they are due.

A topic may have a delay: its messages are due that long after their timestamps. The
first message of a partition that is not due is kept here. Its partition is paused
meanwhile, so the messages behind it stay in Kafka, and other partitions go on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Final

from ..message.incoming import ConsumedMessage, TopicPartition

MIN_WAIT: Final = 0.2
"""Seconds that a message is kept at least: a pause costs a fetch, since the client
drops what it had fetched of the partition."""


class DelayedMessages:
    """
    The messages of one consumer that are not due; for one thread.

    Args:
        delays: seconds by topic; the messages of other topics are due at once.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        delays: Mapping[str, float],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._delays = delays
        self._clock = clock
        self._kept: dict[TopicPartition, deque[tuple[float, ConsumedMessage]]] = {}

    @property
    def partitions(self) -> AbstractSet[TopicPartition]:
        """The partitions that wait."""
        return self._kept.keys()

    def keep(self, message: ConsumedMessage) -> bool:
        """Keep a message that is not due, or is behind one; return whether it is."""
        if message.topic not in self._delays:
            return False
        at, wait = message.topic_partition, self._wait(message)
        if wait <= 0 and at not in self._kept:
            return False
        due_at = self._clock() + max(wait, MIN_WAIT)
        self._kept.setdefault(at, deque()).append((due_at, message))
        return True

    def take_due(self) -> list[ConsumedMessage]:
        """Remove and return the messages that are due, in order for each partition."""
        due: list[ConsumedMessage] = []
        now = self._clock()
        for at, kept in list(self._kept.items()):
            while kept and kept[0][0] <= now:
                due.append(kept.popleft()[1])
            if not kept:
                del self._kept[at]
        return due

    def drop(self, at: TopicPartition) -> None:
        """Forget the messages of a partition: another consumer has it."""
        self._kept.pop(at, None)

    def _wait(self, message: ConsumedMessage) -> float:
        """Return the seconds until a message is due, at most its delay."""
        if message.timestamp is None:
            return 0.0
        delay = self._delays[message.topic]
        # A clock that is ahead, or a forged time, delays nothing for longer.
        ahead = (message.timestamp - datetime.now(UTC)).total_seconds()
        return min(ahead, 0.0) + delay
