"""
What a process knows of its outbox and of itself, in one place.

Health checks and metrics read it, whether the process leads or stands by. The
leader's meter fills it; where there is none, a thread reads the table.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from ..clock import boottime
from ..events import Event, MeterRead
from ..message.record import Backlog


class ProcessStatus:
    """
    An observer of events. Any thread may read it.

    Args:
        ready_age: age of the oldest record in seconds above which the outbox is not
            relayed as it should be; 0 = any age is right.
        patience: seconds after which a database that has not answered is away.
        kafka_fault: why Kafka cannot be reached, or an empty string.
    """

    def __init__(
        self,
        *,
        ready_age: float,
        patience: float,
        kafka_fault: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = boottime,
    ) -> None:
        self.backlog: Backlog | None = None
        """As the last reading has it; None before the first one."""
        self._ready_age = ready_age or inf
        self._patience = patience
        self._kafka_fault = kafka_fault
        self._clock = clock
        self._is_part_of_group = False
        self._asked_at = clock()
        self._database_fault = ""

    def __call__(self, event: Event) -> None:
        if event.kind == "ready":
            self._is_part_of_group = True
        elif event.kind == "stopped":
            self._is_part_of_group = False
        elif isinstance(event, MeterRead):
            self.read(Backlog(event.backlog, event.is_backlog_capped, event.oldest_age))

    def read(self, backlog: Backlog) -> None:
        """Take a reading of the table."""
        self.backlog = backlog
        self._database_fault = ""
        self._asked_at = self._clock()

    def failed(self, error: Exception) -> None:
        """Note that the table could not be read."""
        self._database_fault = str(error)
        self._asked_at = self._clock()

    @property
    def age(self) -> float:
        """Seconds since the table was last asked."""
        return self._clock() - self._asked_at

    def reasons(self) -> list[str]:
        """Return why this process does not do its part; none: it does."""
        reasons = []
        if not self._is_part_of_group:
            reasons.append("it is not in the leader group")
        if self._database_fault:
            reasons.append(f"the database is away: {self._database_fault}")
        elif self.age > self._patience:
            reasons.append(f"the database has not answered for {self.age:.0f} s")
        if kafka_fault := self._kafka_fault():
            reasons.append(kafka_fault)
        if self.backlog is not None and self.backlog.oldest_age > self._ready_age:
            reasons.append(
                f"the oldest record is {self.backlog.oldest_age:.0f} s old, more than"
                f" READY_AGE ({self._ready_age:g} s)"
            )
        return reasons
