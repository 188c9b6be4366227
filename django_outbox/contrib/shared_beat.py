"""
Celery beat in several processes, which send each scheduled task once.

    celery -A config beat --scheduler django_outbox.contrib.shared_beat:SharedScheduler

A schedule has the same due times in every process. Who sends the task of one claims it
in the table of processed messages, in a transaction that commits once the broker has
taken the task; the others find the claim. So none of them has to be elected, and when
one dies the others go on without a pause.
"""

from __future__ import annotations

import copy
import logging
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from celery.schedules import BaseSchedule, crontab, schedule
from django.db import Error, close_old_connections

from ..conf import settings
from ..exceptions import ConfigurationError, OutboxError
from ..idempotence.once import Once

logger = logging.getLogger(__name__)

CONSUMER: Final = "celery-beat"
"""The consumer whose keys the claims are."""

CATCH_UP: Final = timedelta(minutes=5)
"""How late a task is still sent, after nobody could send it."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAMESPACE: Final = uuid.UUID("0f0b5d1c-3c0e-4d53-8d8c-0d2a5f0c6a3e")
"""UUID namespace of the tasks' ids; must never change."""


class SharedScheduler(Scheduler):  # type: ignore[misc]  # Celery has no types
    """
    Sends a task at each due time, unless another process has.

    Intervals count from 1970-01-01 UTC: 30 seconds are due at :00 and :30. A task has
    the same id, whichever process sends it.
    """

    max_interval = 5
    """Seconds until beat looks again, at most."""

    def setup_schedule(self) -> None:
        """
        Read the schedule.

        Raises:
            ConfigurationError: the due times of an entry may differ between processes.
        """
        super().setup_schedule()
        for entry in self.schedule.values():
            when = entry.schedule
            is_interval = type(when) is schedule and when.run_every > timedelta(0)
            if not (is_interval or type(when) is crontab):
                raise ConfigurationError(
                    f"beat_schedule[{entry.name!r}]: {when!r} is neither an interval "
                    "nor a crontab, so its due times may differ between processes."
                )
        self._done: dict[str, datetime] = {}

    def now(self) -> datetime:
        """Return the time by which tasks are due."""
        return datetime.now(UTC)

    def tick(self, **_: Any) -> float:
        """Send what is due; return the seconds until the next look."""
        now = self.now()
        wait = float(self.max_interval)
        for entry in [*self.schedule.values()]:
            last, following = due_times(entry.schedule, now)
            if last is not None and self._done.get(entry.name) != last:
                if self._send(entry, last):
                    self._done[entry.name] = last
                else:
                    wait = min(wait, 1.0)
            wait = min(wait, (following - now).total_seconds())
        return wait

    def _send(self, entry: ScheduleEntry, due: datetime) -> bool:
        """Send the task of a due time, or find that it was sent; False: try again."""
        key = f"{entry.name}@{due.isoformat()}"
        sent = copy.copy(entry)
        sent.options = {**entry.options, "task_id": str(uuid.uuid5(_NAMESPACE, key))}
        close_old_connections()
        try:
            with Once(
                key, consumer=CONSUMER, idle_timeout=settings.CONSUMER_IDLE_TIMEOUT
            ) as run:
                if run.is_first:
                    self.apply_async(sent, producer=self.producer, advance=False)
                    logger.info("Sent %s, due at %s", entry.name, due)
        except (Error, OutboxError, SchedulingError) as error:
            logger.warning(
                "Could not send %s, due at %s; trying again: %s",
                entry.name,
                due,
                str(error).partition("\n")[0],
                extra={"action": "shared_beat"},
            )
            return False
        return True


def due_times(when: BaseSchedule, now: datetime) -> tuple[datetime | None, datetime]:
    """
    Return the last due time of a schedule, and the one after now, both in UTC.

    The last one is None if it is longer ago than CATCH_UP.
    """
    last: datetime | None = None
    for due in _due_after(when, now - CATCH_UP):
        if due > now:
            return last, due
        last = due
    raise AssertionError("a schedule has no end")


def _due_after(when: BaseSchedule, moment: datetime) -> Iterator[datetime]:
    """Yield the due times after a moment."""
    if isinstance(when, crontab):
        while True:
            start, step, _ = when.remaining_delta(moment)
            moment = (start + step).astimezone(UTC)
            yield moment
    interval = when.run_every
    count = (moment - _EPOCH) // interval
    while True:
        count += 1
        yield _EPOCH + count * interval
