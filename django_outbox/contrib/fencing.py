"""
The current leader id in a table, so that application work can be fenced by it.

A signal informs one process that it leads. Work that may run in another process,
or continue after its leader has lost the lease, has to check it elsewhere: this
table has a row for each singleton with the current leader id, and every unit of
work reads it under a lock in its own transaction.

Guarantees, independent of clocks and the broker:

- units of one singleton never overlap, on any machine: they hold an advisory lock
  of their database;
- no unit begins under a leader id that has ended, or that a successor has
  replaced: the row is read after the lock was acquired;
- a frozen process delays its successor by at most `idle_timeout`: PostgreSQL ends
  its transaction, so that its unit can no longer commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from django.db import OperationalError, connections, models, router, transaction
from django.utils.translation import gettext_lazy as _

from ..exceptions import OutboxError, sqlstate_of

_ISOLATION: Final = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
"""Reading the row must see all changes that were committed before the lock was held."""

_TRY_LOCK: Final = """
-- outbox: begin a unit
SELECT set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true),
       pg_try_advisory_xact_lock(hashtextextended(%(lock)s, 0))
"""

_WAIT: Final = """
-- outbox: wait for the running unit
SELECT set_config('lock_timeout', %(timeout)s, true),
       pg_advisory_xact_lock(hashtextextended(%(lock)s, 0))
"""

_LOCK_NOT_AVAILABLE: Final = "55P03"


class UnitRefused(OutboxError):
    """The leader id has ended, or another unit of the singleton is running."""


class LeadershipManager(models.Manager["Leadership"]):
    """The operations on the table; all use the database for writes."""

    idle_timeout: float = 15.0
    """Idle-in-transaction time-out of a unit, in seconds: PostgreSQL ends a unit that
    sends no statement for so long."""

    def claim(self, name: str, leader_id: str, *, is_fresh: Callable[[], bool]) -> bool:
        """
        Make this leader id the current one; True when it is.

        The row is read before `is_fresh` is asked whether no successor can exist
        yet, and written only if it has not changed since. So a leader that was
        paused meanwhile cannot replace its successor.
        """
        rows = self.using(self._alias())
        row, _created = rows.get_or_create(name=name)
        if str(row.leader_id) == leader_id:
            return True
        if not is_fresh():
            return False
        unchanged = rows.filter(name=name, version=row.version)
        return bool(
            unchanged.update(leader_id=leader_id, version=models.F("version") + 1)
        )

    def end(self, name: str, leader_id: str) -> bool:
        """Let no further unit begin under this leader id; do not wait."""
        mine = self.using(self._alias()).filter(name=name, leader_id=leader_id)
        return bool(mine.update(leader_id=None, version=models.F("version") + 1))

    def wait_for_unit(self, name: str, *, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the running unit; False if it continues."""
        milliseconds = str(max(1, round(timeout * 1000)))
        try:
            with transaction.atomic(using=self._alias()):
                self._execute(_WAIT, name, timeout=milliseconds)
        except OperationalError as error:
            if sqlstate_of(error) != _LOCK_NOT_AVAILABLE:
                raise
            return False
        return True

    @contextmanager
    def unit(self, name: str, leader_id: str) -> Iterator[None]:
        """
        Run the block in a transaction that is opened for the current leader id only.

        Raises:
            UnitRefused: before the block, which then does not run.
        """
        alias = self._alias()
        with transaction.atomic(using=alias, durable=True):
            with connections[alias].cursor() as cursor:
                cursor.execute(_ISOLATION)
            idle_timeout = str(round(self.idle_timeout * 1000))
            (_setting, is_alone) = self._execute(
                _TRY_LOCK, name, idle_timeout=idle_timeout
            )
            mine = self.using(alias).filter(name=name, leader_id=leader_id)
            if not (is_alone and mine.exists()):
                raise UnitRefused
            yield

    def _alias(self) -> str:
        return self._db or router.db_for_write(self.model)

    def _execute(self, sql: str, name: str, **values: str) -> tuple[Any, ...]:
        lock = f"{self.model._meta.db_table}:{name}"
        with connections[self._alias()].cursor() as cursor:
            cursor.execute(sql, {"lock": lock, **values})
            row: tuple[Any, ...] | None = cursor.fetchone()
        assert row is not None, "SELECT of functions gives one row"
        return row


class Leadership(models.Model):
    """
    The current leader id of each singleton; subclass it in an app of yours.

    The table must be in the database in which the units work, or they are not
    fenced.
    """

    name = models.CharField(_("name"), max_length=255, primary_key=True)
    leader_id = models.UUIDField(_("leader id"), null=True)
    version = models.BigIntegerField(_("version"), default=0)

    objects: ClassVar[LeadershipManager] = LeadershipManager()

    class Meta:
        abstract = True
        verbose_name = _("leadership")
        verbose_name_plural = _("leaderships")

    def __str__(self) -> str:
        return f"{self.name}: {self.leader_id or _('nobody')}"
