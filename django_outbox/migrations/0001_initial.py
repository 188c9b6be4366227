"""
All tables of the outbox.

The settings TABLE and CLUSTER_ID shape them.
"""

from __future__ import annotations

from typing import Any, Final

from django.core.serializers.json import DjangoJSONEncoder
from django.db import migrations, models, router
from django.db.models.deletion import PROTECT
from django.db.models.functions import Now
from django.db.utils import NotSupportedError

from django_outbox.conf import schema_settings

from . import _sql
from ._tables import date_in_range, message_columns, message_constraints, record_columns

TABLE: Final = schema_settings().TABLE


class RequirePostgreSQL(migrations.operations.base.Operation):
    """Refuse to create the tables in a database other than PostgreSQL."""

    reversible = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Leave the models as they are."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        connection = schema_editor.connection
        if connection.vendor == "postgresql" or not router.allow_migrate(
            connection.alias, app_label, model_name="outboxrecord"
        ):
            return
        raise NotSupportedError(
            f"The outbox needs PostgreSQL, and the database {connection.alias!r} is "
            f"{connection.display_name}. Give the app {app_label!r} a PostgreSQL "
            "database: a router whose allow_migrate() refuses this one."
        )

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Leave the database as it is."""

    def describe(self) -> str:
        return "Require PostgreSQL"


def run_sql(forwards: str, backwards: str = "", *, model: str) -> migrations.RunSQL:
    """
    Return an operation that runs SQL for the table of a model.

    Routers that answer by the model get its name as a hint. Backwards nothing is
    needed for what goes with its table.
    """
    return migrations.RunSQL(
        forwards, backwards or migrations.RunSQL.noop, hints={"model_name": model}
    )


class Migration(migrations.Migration):
    """Create every table."""

    initial = True

    dependencies = ()

    operations = [
        RequirePostgreSQL(),
        migrations.CreateModel(
            name="OutboxRecord",
            fields=record_columns(
                id=models.BigAutoField(
                    primary_key=True, serialize=False, db_comment="Order of insertion."
                ),
                leader_id=models.UUIDField(
                    "leader",
                    null=True,
                    db_comment="The mark: the leader id that claimed the row.",
                ),
            ),
            options={
                "verbose_name": "outbox record",
                "verbose_name_plural": "outbox records",
                "db_table": TABLE,
                "db_table_comment": "Messages that wait to be sent to Kafka.",
                "ordering": ("id",),
                "default_permissions": ("view",),
                "permissions": [
                    ("view_payload", "Can see keys, values and headers"),
                    ("view_live", "Can see the live page"),
                    ("park_outboxrecord", "Can park blocked record"),
                    ("skip_outboxrecord", "Can drop blocked record"),
                ],
                "constraints": message_constraints("outbox"),
            },
        ),
        run_sql(_sql.OUTBOX_STORAGE, model="outboxrecord"),
        migrations.CreateModel(
            name="ParkedRecord",
            fields=record_columns(
                parked_id=models.BigAutoField(primary_key=True, serialize=False),
                id=models.BigIntegerField(db_comment="The row's id in the outbox."),
                parked_at=models.DateTimeField("parked at", db_default=Now()),
            ),
            options={
                "verbose_name": "parked record",
                "verbose_name_plural": "parked records",
                "db_table": f"{TABLE}_parked",
                "db_table_comment": (
                    "Messages parked because their delivery kept failing."
                ),
                "ordering": ("id",),
                "default_permissions": ("view",),
                "permissions": [
                    ("release_parkedrecord", "Can release parked record"),
                    ("skip_parkedrecord", "Can drop parked record"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ArchivedRecord",
            fields=record_columns(
                pk=models.CompositePrimaryKey(
                    "archived_at",
                    "id",
                    blank=True,
                    editable=False,
                    primary_key=True,
                    serialize=False,
                ),
                id=models.BigIntegerField(db_comment="The row's id in the outbox."),
                archived_at=models.DateTimeField("archived at", db_default=Now()),
            ),
            options={
                "verbose_name": "archived record",
                "verbose_name_plural": "archived records",
                "db_table": f"{TABLE}_archive",
                "db_table_comment": "Messages that were sent.",
                "ordering": ("archived_at", "id"),
                "default_permissions": ("view",),
                "permissions": [
                    ("replay_archivedrecord", "Can send archived record again")
                ],
            },
        ),
        run_sql(_sql.DIVIDE, model="archivedrecord"),
        run_sql(_sql.LEAST, model="archivedrecord"),
        run_sql(_sql.TEND, _sql.DROP_TEND, model="archivedrecord"),
        run_sql(_sql.BEGIN_TENDING, model="archivedrecord"),
        migrations.CreateModel(
            name="ProcessedMessage",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "consumer",
                        "key",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "consumer",
                    models.CharField(
                        "consumer",
                        max_length=255,
                        db_comment="The consumer; each has its own keys.",
                    ),
                ),
                (
                    "key",
                    models.CharField(
                        "key",
                        max_length=512,
                        db_comment="The message id, or another unique key.",
                    ),
                ),
                (
                    "processed_at",
                    models.DateTimeField(
                        "processed at",
                        db_default=Now(),
                        db_index=True,
                        db_comment="When the transaction of its effects ran.",
                    ),
                ),
                (
                    "response",
                    models.JSONField(
                        "response",
                        null=True,
                        encoder=DjangoJSONEncoder,
                        db_comment=(
                            "Response of the first time; a repeat returns it, too."
                        ),
                    ),
                ),
            ],
            options={
                "verbose_name": "processed message",
                "verbose_name_plural": "processed messages",
                "db_table": f"{TABLE}_processed",
                "db_table_comment": (
                    "Keys of messages that were processed: the dedupe window."
                ),
                "ordering": ("consumer", "processed_at"),
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="ConsumerOffset",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group_id",
                        "topic",
                        "partition",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "group_id",
                    models.CharField(
                        "group",
                        max_length=255,
                        db_comment="The Kafka consumer group.",
                    ),
                ),
                (
                    "topic",
                    models.CharField("topic", max_length=249, db_comment="The topic."),
                ),
                (
                    "partition",
                    models.IntegerField("partition", db_comment="Its partition."),
                ),
                (
                    "next_offset",
                    models.BigIntegerField(
                        "next offset",
                        db_comment="The first offset that is not processed yet; 0 = "
                        "from the beginning.",
                    ),
                ),
                (
                    "topic_id",
                    models.CharField(
                        "topic id",
                        max_length=36,
                        blank=True,
                        db_default="",
                        db_comment=(
                            "Kafka's id of the topic; changes if it is created again."
                        ),
                    ),
                ),
                (
                    "updated_at",
                    models.DateTimeField(
                        "updated at",
                        db_default=Now(),
                        db_comment="Last change of the offset.",
                    ),
                ),
            ],
            options={
                "verbose_name": "consumer offset",
                "verbose_name_plural": "consumer offsets",
                "db_table": f"{TABLE}_offsets",
                "db_table_comment": "Offsets of consumers (setting OFFSETS).",
                "ordering": ("group_id", "topic", "partition"),
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Series",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(
                        "name",
                        max_length=255,
                        db_comment="Name of the series.",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        "created at",
                        db_default=Now(),
                        db_comment="When it was opened.",
                    ),
                ),
                (
                    "expected",
                    models.IntegerField(
                        "expected",
                        null=True,
                        db_comment=("Number of messages that completes it, or null."),
                    ),
                ),
                (
                    "staged",
                    models.IntegerField(
                        "staged",
                        db_default=0,
                        db_comment="Number of messages staged so far.",
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        "state",
                        max_length=9,
                        choices=[
                            ("open", "open"),
                            ("expiring", "expiring"),
                            ("released", "released"),
                            ("discarded", "discarded"),
                            ("expired", "expired"),
                        ],
                        db_default="open",
                        db_comment="open, expiring, released, discarded or expired.",
                    ),
                ),
                (
                    "expires_at",
                    models.DateTimeField(
                        "expires at",
                        null=True,
                        db_comment="When it expires; null: never.",
                    ),
                ),
                (
                    "on_timeout",
                    models.CharField(
                        "on time-out",
                        max_length=7,
                        choices=[("park", "park"), ("discard", "discard")],
                        db_default="park",
                        db_comment=(
                            "What happens to its messages then: park or discard."
                        ),
                    ),
                ),
                (
                    "closed_at",
                    models.DateTimeField(
                        "closed at",
                        null=True,
                        db_comment="When it was released, discarded or expired.",
                    ),
                ),
            ],
            options={
                "verbose_name": "series",
                "verbose_name_plural": "series",
                "db_table": f"{TABLE}_series",
                "db_table_comment": "Series of messages that are sent together.",
                "ordering": ("id",),
                "default_permissions": ("view",),
                "permissions": [
                    ("release_series", "Can release series"),
                    ("discard_series", "Can discard series"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["name"], name=f"{TABLE}_series_name"
                    ),
                    models.CheckConstraint(
                        name="outbox_series_dates_in_range",
                        condition=date_in_range("expires_at")
                        & date_in_range("closed_at"),
                    ),
                ],
            },
        ),
        run_sql(_sql.SERIES_STORAGE, model="series"),
        run_sql(_sql.SERIES_INDEXES, model="series"),
        migrations.CreateModel(
            name="StagedRecord",
            fields=message_columns(
                staged_id=models.BigAutoField(
                    primary_key=True, serialize=False, db_comment="Order of staging."
                ),
                series=models.ForeignKey(
                    "django_outbox.series",
                    PROTECT,
                    verbose_name="series",
                    null=True,
                    db_index=False,
                    related_name="records",
                    db_comment="The series of the message.",
                ),
                not_before=models.DateTimeField(
                    "not before",
                    null=True,
                    db_comment="When the leader moves it into the outbox.",
                ),
            ),
            options={
                "verbose_name": "staged record",
                "verbose_name_plural": "staged records",
                "db_table": f"{TABLE}_staged",
                "db_table_comment": ("Messages of open series, and delayed messages."),
                "ordering": ("staged_id",),
                "default_permissions": ("view",),
                "constraints": [
                    *message_constraints("outbox_staged"),
                    models.CheckConstraint(
                        name="outbox_staged_date_in_range",
                        condition=date_in_range("not_before"),
                    ),
                    models.CheckConstraint(
                        name="outbox_staged_waits_for_one",
                        condition=models.Q(
                            series__isnull=True, not_before__isnull=False
                        )
                        | models.Q(series__isnull=False, not_before__isnull=True),
                    ),
                ],
            },
        ),
        run_sql(_sql.STAGED_STORAGE, model="stagedrecord"),
        run_sql(_sql.STAGED_INDEXES, model="stagedrecord"),
        run_sql(_sql.IDENTIFY, _sql.DROP_IDENTITY, model="outboxrecord"),
    ]
