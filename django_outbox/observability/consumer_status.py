"""What a process of `runconsumer` knows of itself, for health checks and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..events import ConsumerRead, PartitionsChanged, WorkerEvent
from .message_times import MessageTimes


class ConsumerStatus:
    """
    An observer of a consumer's events. Any thread may read it.

    Args:
        patience: seconds without an event after which the process is stuck.
        kafka_fault: why Kafka cannot be reached, or an empty string.
        times: how long messages took, filled elsewhere.
    """

    def __init__(
        self,
        *,
        patience: float,
        kafka_fault: Callable[[], str],
        times: MessageTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reading: ConsumerRead | None = None
        """The last one; None before the first."""
        self.partitions = 0
        """Partitions of this process."""
        self.times = times or MessageTimes()
        self._patience = patience
        self._kafka_fault = kafka_fault
        self._clock = clock
        self._heard_at = clock()
        self.is_member = False
        """Whether it is in its group."""

    def __call__(self, event: WorkerEvent) -> None:
        self._heard_at = self._clock()
        if isinstance(event, ConsumerRead):
            self.reading = event
        elif isinstance(event, PartitionsChanged):
            self.partitions = len(event.partitions)
            self.is_member = True
        elif event.kind in {"ready", "stopped", "membership_lost"}:
            self.is_member = event.kind == "ready"

    @property
    def reading_age(self) -> float:
        """Seconds since the last event; before that, since the start."""
        return self._clock() - self._heard_at

    def reasons(self) -> list[str]:
        """Return why this process does not do its part; none: it does."""
        reasons = []
        if not self.is_member:
            reasons.append("it is not in its consumer group")
        elif (silence := self.reading_age) > self._patience:
            reasons.append(
                f"a message has been under way for {silence:.0f} s: its handler takes"
                " long, or waits for a service that is away"
            )
        if kafka_fault := self._kafka_fault():
            reasons.append(kafka_fault)
        return reasons
