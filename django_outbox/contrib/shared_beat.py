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
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from celery.schedules import BaseSchedule, crontab, schedule
from django.db import Error, close_old_connections

from ..conf import settings
from ..exceptions import ConfigurationError, OutboxError
from ..idempotence.once import Once
from ..models.processed_message import KEY_LENGTH
from ..wording import first_line
from .broker_confirms import require_confirms

logger = logging.getLogger(__name__)

CONSUMER: Final = "celery-beat"
"""The consumer whose keys the claims are."""

CATCH_UP: Final = timedelta(minutes=5)
"""How late a task is still sent, after nobody could send it."""

HOURS: Final = 24
"""Of a crontab that is due in each hour."""

_MINUTE: Final = timedelta(minutes=1)

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
            ConfigurationError: the due times of an entry may differ between processes,
                or Celery's broker would not tell whether it got a task.
        """
        require_confirms(self.app)
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
        # At the start this waits for Celery's broker, perhaps for minutes: before a
        # claim, whose transaction PostgreSQL would end, and before the clock is read.
        producer = self.producer
        now = self.now()
        wait = float(self.max_interval)
        for entry in [*self.schedule.values()]:
            last, look_at = due_times(entry.schedule, now)
            if last is not None and self._done.get(entry.name) != last:
                if self._send(entry, last, producer):
                    self._done[entry.name] = last
                else:
                    wait = min(wait, 1.0)
            wait = min(wait, (look_at - now).total_seconds())
        return wait

    def _send(self, entry: ScheduleEntry, due: datetime, producer: Any) -> bool:
        """Send the task of a due time, or find that it was sent; False: try again."""
        key = f"{entry.name}@{due.isoformat()}"
        task_id = str(uuid.uuid5(_NAMESPACE, key))
        if not key.isprintable() or len(key.encode()) > KEY_LENGTH:
            # Celery names an entry after all arguments of its task.
            key = task_id
        sent = copy.copy(entry)
        sent.options = {**entry.options, "task_id": task_id}
        close_old_connections()
        try:
            with Once(
                key, consumer=CONSUMER, idle_timeout=settings.CONSUMER_IDLE_TIMEOUT
            ) as run:
                if run.is_first:
                    self.apply_async(sent, producer=producer, advance=False)
                    logger.info("Sent %s, due at %s", entry.name, due)
        except (Error, OutboxError, SchedulingError) as error:
            logger.warning(
                "Could not send %s, due at %s; trying again: %s",
                entry.name,
                due,
                first_line(error),
                extra={"action": "shared_beat"},
            )
            return False
        return True


def due_times(when: BaseSchedule, now: datetime) -> tuple[datetime | None, datetime]:
    """
    Return the last due time of a schedule, and when to look again, both in UTC.

    The last one is None if it is longer ago than CATCH_UP.
    """
    if isinstance(when, crontab):
        minute = now.replace(second=0, microsecond=0)
        looked_at = (minute - n * _MINUTE for n in range(CATCH_UP // _MINUTE))
        found = (one for one in looked_at if _is_due(when, one))
        return next(found, None), minute + _MINUTE
    last = _EPOCH + (now - _EPOCH) // when.run_every * when.run_every
    return last if now - last < CATCH_UP else None, last + when.run_every


def _is_due(when: crontab, minute: datetime) -> bool:
    """
    Whether a crontab is due at a minute.

    Where clocks are put back and show an hour twice, what is due at certain hours is
    due in the first one. Where they are put forward and pass an hour over, it is due
    when clocks that stayed as they were would show it.
    """
    zone = when.tz
    shown = minute.astimezone(zone)
    is_first = not shown.fold or len(when.hour) == HOURS
    if is_first and _matches(when, shown):
        return True
    before = (minute - timedelta(hours=2)).astimezone(zone).utcoffset()
    passed_over = minute.replace(tzinfo=zone) + (before or timedelta())
    exists = passed_over == passed_over.astimezone(UTC).astimezone(zone)
    return not exists and _matches(when, passed_over)


def _matches(when: crontab, shown: datetime) -> bool:
    """Whether a crontab names what clocks show."""
    return (
        shown.minute in when.minute
        and shown.hour in when.hour
        and shown.isoweekday() % 7 in when.day_of_week
        and shown.day in when.day_of_month
        and shown.month in when.month_of_year
    )
