"""
What a consumer reports about its work: counts, failures and the lag.

Neither the log nor the events show a key, a value or a header. The log does
show a handler's exception with its text, which is the application's own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..events import (
    ConsumerRead,
    ConsumerReady,
    ConsumerStopped,
    DeadLettered,
    MembershipLost,
    PartitionsChanged,
    WorkerEvent,
)
from ..message.incoming import ConsumedMessage
from ..observability.message_times import MessageTimes
from .ports import Assignment
from .reasons import summary

logger = logging.getLogger(__name__)

Observer: TypeAlias = Callable[[WorkerEvent], None]
"""Receives every event on the runner's thread; must return at once."""


class Progress:
    """
    Counts messages, and publishes events to observers.

    Args:
        name: the process.
        group: its consumer group.
        interval: seconds between two readings.
        clock: monotonic seconds.
        times: gets how long each message took.
    """

    def __init__(
        self,
        observers: Sequence[Observer],
        *,
        name: str,
        group: str,
        interval: float,
        clock: Callable[[], float],
        times: MessageTimes | None = None,
    ) -> None:
        self._observers = observers
        self._name = name
        self._group = group
        self._interval = interval
        self._clock = clock
        self._read_at = clock()
        self._seen = 0
        self._is_ready = False
        self.times = times or MessageTimes()
        self.readings = 0
        """How many were published."""
        self.processed = self.repeats = self.failures = self.dead_letters = 0

    def did(self, *, is_first: bool) -> None:
        """Count a message whose effects are committed."""
        if is_first:
            self.processed += 1
        else:
            self.repeats += 1

    def failed(
        self, message: ConsumedMessage, error: BaseException, attempts: int
    ) -> None:
        """Count and log an attempt that failed."""
        self.failures += 1
        logger.warning(
            "Attempt %d on %s/%d at offset %d (message id %s) failed: %s",
            attempts,
            *(message.topic, message.partition, message.offset, message.message_id),
            summary(error),
            exc_info=error,
            extra={"action": "attempt_failed"},
        )

    def set_aside(
        self, message: ConsumedMessage, error: BaseException, attempts: int
    ) -> None:
        """Count and publish a message that went to the dead letter topic."""
        self.dead_letters += 1
        self._publish(
            DeadLettered(
                name=self._name,
                group=self._group,
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                attempts=attempts,
                error=type(error).__qualname__,
            )
        )

    def changed(self, assignment: Assignment) -> None:
        """Publish the partitions that are assigned now, or that we are out."""
        if not self._is_ready:
            self._is_ready = True
            self._publish(ConsumerReady(name=self._name, group=self._group))
        partitions = tuple(
            f"{topic}/{number}" for topic, number in assignment.partitions
        )
        self._publish(
            PartitionsChanged(name=self._name, group=self._group, partitions=partitions)
        )
        if not assignment.is_member:
            self._publish(MembershipLost(name=self._name, group=self._group))

    def tick(self, assignment: Assignment) -> None:
        """Publish a reading if it is due."""
        if self._clock() - self._read_at >= self._interval:
            self.read(assignment)

    def read(self, assignment: Assignment) -> None:
        """Publish a reading."""
        now = self._clock()
        seen = self.processed + self.repeats + self.dead_letters
        passed = max(now - self._read_at, 1e-9)
        rate = (seen - self._seen) / passed
        self._read_at, self._seen = now, seen
        self.readings += 1
        self._publish(
            ConsumerRead(
                name=self._name,
                group=self._group,
                rate=round(rate, 1),
                processed=self.processed,
                repeats=self.repeats,
                failed=self.failures,
                dead_letters=self.dead_letters,
                lag=assignment.lag(),
            )
        )

    def stopped(self) -> None:
        """Publish the end."""
        self._publish(ConsumerStopped(name=self._name, group=self._group))

    def _publish(self, event: WorkerEvent) -> None:
        for observer in self._observers:
            try:
                observer(event)
            except Exception:
                logger.exception("An observer failed on %s", event.kind)
