"""
The tables: what waits, what was set aside, and what was sent.

`stashing/writing.py` writes `OutboxRecord`s, the harvester moves them on through
`postgres/`, people look at all three through the admin and `manage.py outbox`.
The columns of the outbox are goharvest's; every other column has a database
default, so that plain SQL from any language works (docs/concepts/writing.md).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db import connections, models, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..conf import schema_settings
from ..message.record import Backlog, Waiting
from .aging import AgedQuerySet
from .columns import RecordColumns, message_constraints

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


class OutboxQuerySet(models.QuerySet["OutboxRecord"]):
    """Questions about what waits."""

    def backlog(self, *, cap: int = 100_000) -> Backlog:
        """Count these rows, up to a cap, and age the oldest by the database's clock."""
        records = self.order_by()[:cap].count()
        age = models.ExpressionWrapper(
            Now() - F("create_time"), output_field=models.DurationField()
        )
        oldest = self.order_by("id").values_list(age)[:1]
        ages: list[timedelta] = [row[0] for row in oldest]
        return Backlog(
            records=records,
            is_capped=records >= cap,
            oldest_age=ages[0].total_seconds() if ages else 0.0,
        )

    def waiting(self) -> list[Waiting]:
        """Count all of these rows by their cluster, and age the oldest of each."""
        is_finite = models.Func(
            F("create_time"),
            function="isfinite",
            output_field=models.BooleanField(),
        )
        age = models.ExpressionWrapper(
            Now() - models.Min("create_time", filter=models.Q(is_finite)),
            output_field=models.DurationField(),
        )
        rows = (
            self.order_by("cluster_id")
            .values_list("cluster_id")
            .annotate(models.Count("pk"), oldest_age=age)
        )
        return [
            Waiting(origin, records, None if oldest is None else oldest.total_seconds())
            for origin, records, oldest in rows
        ]

    def blocked(self) -> OutboxQuerySet:
        """Rows whose delivery has failed, with the key that waits behind each."""
        return self.filter(attempts__gt=0).order_by("id")


class ParkedQuerySet(models.QuerySet["ParkedRecord"]):
    """What can be done with parked records."""

    def release(self) -> int:
        """
        Put these rows back into the outbox; return how many went.

        A row gets its own id and message id back, so that it comes first among
        the records of its key that are still unsent; those sent meanwhile stay
        sent. But a leader that keeps its marks in memory finds what is behind it
        with its next sweep, and what is ahead of it at once: see the reference
        of `manage.py outbox release`. Its attempts start at zero, and so does its
        age: other clusters take over what is old. A row whose id the outbox, or one
        released with it, has stays parked. Releasing twice at once is harmless.
        """
        self._for_write = True
        connection = connections[self.db]
        quote = connection.ops.quote_name
        forgotten = {"leader_id", "attempts", "last_error", "create_time"}
        columns = [
            quote(field.column)
            for field in OutboxRecord._meta.concrete_fields
            if field.column and field.name not in forgotten
        ]
        statement = _RELEASE.format(
            parked=quote(ParkedRecord._meta.db_table),
            outbox=quote(OutboxRecord._meta.db_table),
            columns=", ".join(columns),
        )
        with transaction.atomic(using=self.db), connection.cursor() as cursor:
            parked_ids = list(self.order_by().values_list("parked_id", flat=True))
            cursor.execute(statement, [parked_ids])
            return int(cursor.rowcount)


class ArchivedQuerySet(AgedQuerySet["ArchivedRecord"]):
    """What can be done with archived records."""

    aged_by = "archived_at"


class OutboxRecord(RecordColumns):
    """A message that waits to be sent. Its row goes when Kafka has it."""

    id = models.BigAutoField(primary_key=True, db_comment="Order of insertion.")
    leader_id = models.UUIDField(
        _("leader"),
        null=True,
        db_comment="The mark: the leader id that has claimed the row.",
    )

    objects = OutboxQuerySet.as_manager()

    class Meta:
        db_table = schema_settings().TABLE
        db_table_comment = "Messages that wait to be sent to Kafka."
        verbose_name = _("outbox record")
        verbose_name_plural = _("outbox records")
        ordering = ("id",)
        default_permissions = ("view",)
        permissions = [("view_payload", _("Can see keys, values and headers"))]
        constraints = message_constraints("outbox")


class ParkedRecord(RecordColumns):
    """A message that failed again and again, set aside until a person decides."""

    # Neither id nor message_id: plain SQL may use either twice, and a record
    # that cannot be parked would hold up the harvest. So `manage.py outbox` and the
    # admin call a parked record by this id, and show the other one beside it.
    parked_id = models.BigAutoField(primary_key=True)
    id = models.BigIntegerField(db_comment="The row's id in the outbox.")
    parked_at = models.DateTimeField(_("parked at"), db_default=Now())

    objects = ParkedQuerySet.as_manager()

    class Meta:
        db_table = f"{schema_settings().TABLE}_parked"
        db_table_comment = "Messages that were set aside because they kept failing."
        verbose_name = _("parked record")
        verbose_name_plural = _("parked records")
        ordering = ("id",)
        default_permissions = ("view", "delete")
        permissions = [("release_parkedrecord", _("Can release parked record"))]

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
