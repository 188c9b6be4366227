"""
The tables of messages that wait, were parked, or were sent.

The outbox has goharvest's columns; every other column has a database default, so that
plain SQL from any language works (docs/concepts/writing.md).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final

from django.db import connections, models, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..conf import schema_settings
from ..message.record import Backlog, ClusterBacklog
from .aging import AgedQuerySet
from .columns import RecordColumns, message_constraints

MAX_SHARES: Final = 20
"""Shares of the backlog that are returned, the largest ones."""

_RELEASE: Final = """\
-- outbox: release
WITH released AS (
    DELETE FROM {parked} AS parked
    WHERE parked_id IN (
        SELECT DISTINCT ON (id) parked_id FROM {parked}
        WHERE parked_id = ANY(%s) ORDER BY id, parked_id
    )
    AND NOT EXISTS (SELECT FROM {outbox} AS outbox WHERE outbox.id = parked.id)
    RETURNING {columns}
)
INSERT INTO {outbox} ({columns}) SELECT {columns} FROM released ORDER BY id"""

_PARK: Final = """\
-- outbox: park
WITH parked AS (
    DELETE FROM {outbox} WHERE id = ANY(%s) AND attempts > 0 RETURNING {columns}
)
INSERT INTO {parked} ({columns}) SELECT {columns} FROM parked ORDER BY id"""


def _moved(alias: str, *, forgotten: Collection[str]) -> dict[str, str]:
    """Return the tables between which rows move, and the columns that they keep."""
    quote = connections[alias].ops.quote_name
    columns = [
        quote(field.column)
        for field in OutboxRecord._meta.concrete_fields
        if field.column and field.name not in forgotten
    ]
    return {
        "parked": quote(ParkedRecord._meta.db_table),
        "outbox": quote(OutboxRecord._meta.db_table),
        "columns": ", ".join(columns),
    }


def _has_time() -> models.Q:
    """Whether a time is finite: plain SQL can write others, which have no age."""
    return models.Q(
        models.Func(
            F("create_time"), function="isfinite", output_field=models.BooleanField()
        )
    )


def _oldest_age() -> Any:
    """Aggregate the age of the oldest row with a finite time, by the database."""
    return models.ExpressionWrapper(
        Now() - models.Min("create_time", filter=_has_time()),
        output_field=models.DurationField(),
    )


def _seconds(age: timedelta | None) -> float | None:
    return None if age is None else age.total_seconds()


class OutboxQuerySet(models.QuerySet["OutboxRecord"]):
    """Queries of waiting messages."""

    def backlog(self, *, cap: int = 100_000) -> Backlog:
        """Count these rows up to a cap; the oldest age is by the database's clock."""
        records = self.order_by()[:cap].count()
        age = models.Case(
            models.When(_has_time(), then=Now() - F("create_time")),
            output_field=models.DurationField(),
        )
        oldest = self.order_by("id").values_list(age, flat=True)[:1]
        return Backlog(
            records=records,
            is_capped=records >= cap,
            oldest_age=_seconds(next(iter(oldest), None)) or 0.0,
        )

    def waiting(self) -> list[ClusterBacklog]:
        """Return number and oldest age of these rows for each source cluster."""
        rows = (
            self.order_by("cluster_id")
            .values_list("cluster_id")
            .annotate(models.Count("pk"), oldest_age=_oldest_age())
        )
        return [
            ClusterBacklog(origin, records, _seconds(oldest))
            for origin, records, oldest in rows
        ]

    def blocked(self) -> OutboxQuerySet:
        """Return the rows whose delivery has failed; later rows of their keys wait."""
        return self.filter(attempts__gt=0).order_by("id")

    def shares(self, *columns: str, cap: int = 10_000) -> list[dict[str, Any]]:
        """
        Count the oldest of these rows by columns, the largest share first.

        Never reads more than `cap` rows. Each share has the columns, `records`, and
        `oldest_age` in seconds by the database's clock: None without a finite time.
        """
        oldest = self.order_by("id").values("pk")[:cap]
        rows = OutboxRecord.objects.using(self.db).filter(pk__in=oldest)
        shares = (
            rows.order_by()
            .values(*columns)
            .annotate(records=models.Count("pk"), oldest_age=_oldest_age())
            .order_by("-records", *columns)
        )
        return [
            {**share, "oldest_age": _seconds(share["oldest_age"])}
            for share in shares[:MAX_SHARES]
        ]

    def park(self, ids: Collection[int]) -> int:
        """
        Move blocked ones of these rows to the parked table; return how many.

        Then the next records of their keys go, out of order with them. Rows whose
        delivery has not failed stay: a leader may be sending them.
        """
        self._for_write = True
        statement = _PARK.format(**_moved(self.db, forgotten={"leader_id"}))
        with connections[self.db].cursor() as cursor:
            cursor.execute(statement, [list(ids)])
            return int(cursor.rowcount)

    def skip(self, ids: Collection[int]) -> int:
        """
        Delete blocked ones of these rows unsent; return how many.

        The next records of their keys go. Rows whose delivery has not failed stay: a
        leader may be sending them.
        """
        deleted, _models = self.blocked().filter(pk__in=ids).delete()
        return deleted


class ParkedQuerySet(models.QuerySet["ParkedRecord"]):
    """Queries of parked records."""

    def release(self) -> int:
        """
        Put these rows back into the outbox; return how many went.

        A row keeps its id and message id, so that it precedes the unsent records of
        its key; records sent since then stay sent. A leader that keeps its marks in
        memory only finds ids below its read position with its next repair scan: see
        the reference of `manage.py outbox release`. Attempts and age start at zero,
        because other clusters take over old records. A row stays parked if its id is
        taken, in the outbox or by another released row. Concurrent releases are safe.
        """
        self._for_write = True
        connection = connections[self.db]
        forgotten = {"leader_id", "attempts", "last_error", "create_time"}
        statement = _RELEASE.format(**_moved(self.db, forgotten=forgotten))
        with transaction.atomic(using=self.db), connection.cursor() as cursor:
            parked_ids = list(self.order_by().values_list("parked_id", flat=True))
            cursor.execute(statement, [parked_ids])
            return int(cursor.rowcount)


class ArchivedQuerySet(AgedQuerySet["ArchivedRecord"]):
    """Queries of archived records."""

    aged_by = "archived_at"


class OutboxRecord(RecordColumns):
    """A message that waits to be sent. Its row is deleted when Kafka has it."""

    id = models.BigAutoField(primary_key=True, db_comment="Order of insertion.")
    leader_id = models.UUIDField(
        _("leader"),
        null=True,
        db_comment="The mark: the leader id that claimed the row.",
    )

    objects = OutboxQuerySet.as_manager()

    class Meta:
        db_table = schema_settings().TABLE
        db_table_comment = "Messages that wait to be sent to Kafka."
        verbose_name = _("outbox record")
        verbose_name_plural = _("outbox records")
        ordering = ("id",)
        default_permissions = ("view",)
        permissions = [
            ("view_payload", _("Can see keys, values and headers")),
            ("view_live", _("Can see the live page")),
            ("park_outboxrecord", _("Can park blocked record")),
            ("skip_outboxrecord", _("Can drop blocked record")),
        ]
        constraints = message_constraints("outbox")


class ParkedRecord(RecordColumns):
    """A message whose delivery kept failing, parked until a person decides."""

    # Neither id nor message_id: plain SQL may use either twice, and a record that
    # cannot be parked would block the harvest. `manage.py outbox` and the admin
    # identify a parked record by this id, and show the other one, too.
    parked_id = models.BigAutoField(primary_key=True)
    id = models.BigIntegerField(db_comment="The row's id in the outbox.")
    parked_at = models.DateTimeField(_("parked at"), db_default=Now())

    objects = ParkedQuerySet.as_manager()

    class Meta:
        db_table = f"{schema_settings().TABLE}_parked"
        db_table_comment = "Messages parked because their delivery kept failing."
        verbose_name = _("parked record")
        verbose_name_plural = _("parked records")
        ordering = ("id",)
        default_permissions = ("view",)
        permissions = [
            ("release_parkedrecord", _("Can release parked record")),
            ("skip_parkedrecord", _("Can drop parked record")),
        ]

    def __str__(self) -> str:
        return f"{self.parked_id} → {self.kafka_topic}"


class ArchivedRecord(RecordColumns):
    """A message that was sent, kept until it is pruned (setting ARCHIVE)."""

    pk = models.CompositePrimaryKey("archived_at", "id")
    id = models.BigIntegerField(db_comment="The row's id in the outbox.")
    archived_at = models.DateTimeField(_("archived at"), db_default=Now())

    objects = ArchivedQuerySet.as_manager()

    class Meta:
        db_table = f"{schema_settings().TABLE}_archive"
        db_table_comment = "Messages that were sent."
        verbose_name = _("archived record")
        verbose_name_plural = _("archived records")
        ordering = ("archived_at", "id")
        default_permissions = ("view",)
        permissions = [("replay_archivedrecord", _("Can send archived record again"))]
