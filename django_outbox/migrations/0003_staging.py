"""The staged table and the series table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from django.contrib.postgres.functions import RandomUUID
from django.db import migrations, models
from django.db.models.deletion import PROTECT
from django.db.models.functions import Greatest, Now
from django.db.models.lookups import Exact, LessThanOrEqual

from django_outbox.conf import schema_settings
from django_outbox.models.arrays import TextArrayField

TABLE: Final = schema_settings().TABLE
CLUSTER_ID: Final = schema_settings().CLUSTER_ID

FIRST_DATE: Final = datetime.min.replace(tzinfo=UTC)
LAST_DATE: Final = datetime.max.replace(tzinfo=UTC)
"""Of the dates that Python and Kafka can hold."""

STORAGE: Final = {
    f"{TABLE}_staged": {
        "autovacuum_vacuum_scale_factor": "0",
        "autovacuum_vacuum_threshold": "2000",
        "autovacuum_vacuum_cost_delay": "0",
        "toast.autovacuum_vacuum_scale_factor": "0",
        "toast.autovacuum_vacuum_threshold": "2000",
        "toast.autovacuum_vacuum_cost_delay": "0",
    },
    f"{TABLE}_series": {
        "fillfactor": "50",
        "autovacuum_vacuum_scale_factor": "0",
        "autovacuum_vacuum_threshold": "2000",
        "autovacuum_vacuum_cost_delay": "0",
    },
}
"""
Rows come and go as in the outbox, so a vacuum comes after so many dead rows.

Half of each page of the series table is kept free: each message of a series
counts it up, and needs no new index entry then.
"""

INDICES: Final = {
    f"{TABLE}_staged_due": f'"{TABLE}_staged" (not_before, staged_id)'
    " WHERE not_before IS NOT NULL",
    f"{TABLE}_staged_series": f'"{TABLE}_staged" (series_id, staged_id)'
    " WHERE series_id IS NOT NULL",
    f"{TABLE}_series_due": f'"{TABLE}_series" (state, expires_at)',
    f"{TABLE}_series_closed": f'"{TABLE}_series" (closed_at)'
    " WHERE closed_at IS NOT NULL",
}
"""
One for each question of the leader, and one for a series in its order.

They are made by SQL, because their names belong to the schema: named after the
table they are longer than the thirty letters that Django allows.
"""


def storage(table: str) -> migrations.RunSQL:
    """Return the operation that sets the table's storage parameters."""
    pairs = STORAGE[table].items()
    return migrations.RunSQL(
        f'ALTER TABLE "{table}" SET ({", ".join(f"{k} = {v}" for k, v in pairs)})',
        f'ALTER TABLE "{table}" RESET ({", ".join(STORAGE[table])})',
        hints={"model_name": "stagedrecord"},
    )


def index(name: str) -> migrations.RunSQL:
    """Return the operation that makes an index."""
    return migrations.RunSQL(
        f'CREATE INDEX "{name}" ON {INDICES[name]}',
        f'DROP INDEX "{name}"',
        hints={"model_name": "stagedrecord"},
    )


def cardinality(field: str) -> models.Func:
    """Return the number of elements of an array."""
    return models.Func(
        models.F(field), function="cardinality", output_field=models.IntegerField()
    )


def octets(field: str) -> models.Func:
    """Return the size of a text, or of bytes."""
    return models.Func(
        models.F(field), function="octet_length", output_field=models.IntegerField()
    )


def header_bytes() -> models.Func:
    """Return the size of both arrays of headers as one."""
    both = models.Func(
        *(models.F("kafka_header_keys"), models.F("kafka_header_values")),
        template="(%(expressions)s)",
        arg_joiner=" || ",
        output_field=TextArrayField(),
    )
    return models.Func(
        both, function="pg_column_size", output_field=models.IntegerField()
    )


def date_in_range(field: str) -> models.Q:
    """Return the condition that a date is absent, or finite and in range."""
    return models.Q((f"{field}__gte", FIRST_DATE), (f"{field}__lte", LAST_DATE))


def empty_array() -> models.Value:
    """Return the default of the headers."""
    return models.Value([], output_field=TextArrayField())


class Migration(migrations.Migration):
    """Make both tables; the settings TABLE and CLUSTER_ID shape them."""

    dependencies = (("django_outbox", "0002_processedmessage_consumeroffset"),)

    operations = [
        migrations.CreateModel(
            name="Series",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(
                        "name",
                        max_length=255,
                        db_comment="What the app calls the series.",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        "created at",
                        db_default=Now(),
                        db_comment="When its first message was staged.",
                    ),
                ),
                (
                    "expected",
                    models.IntegerField(
                        "expected",
                        null=True,
                        db_comment=(
                            "Messages that complete it; null: release_series() does."
                        ),
                    ),
                ),
                (
                    "staged",
                    models.IntegerField(
                        "staged",
                        db_default=0,
                        db_comment="Messages that were staged in all.",
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
                        db_comment="When its time is up; null: never.",
                    ),
                ),
                (
                    "on_timeout",
                    models.CharField(
                        "on time-out",
                        max_length=7,
                        choices=[("park", "park"), ("discard", "discard")],
                        db_default="park",
                        db_comment="What becomes of its messages: park or discard.",
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
        storage(f"{TABLE}_series"),
        index(f"{TABLE}_series_due"),
        index(f"{TABLE}_series_closed"),
        migrations.CreateModel(
            name="StagedRecord",
            fields=[
                (
                    "staged_id",
                    models.BigAutoField(
                        primary_key=True,
                        serialize=False,
                        db_comment="Order of staging.",
                    ),
                ),
                (
                    "series",
                    models.ForeignKey(
                        "django_outbox.series",
                        PROTECT,
                        verbose_name="series",
                        null=True,
                        db_index=False,
                        related_name="records",
                        db_comment="The series that it belongs to.",
                    ),
                ),
                (
                    "not_before",
                    models.DateTimeField(
                        "not before",
                        null=True,
                        db_comment="When the leader moves it into the outbox.",
                    ),
                ),
                (
                    "create_time",
                    models.DateTimeField(
                        "created at",
                        db_default=Now(),
                        db_comment="When the row was inserted (statement time).",
                    ),
                ),
                (
                    "kafka_topic",
                    models.CharField(
                        "topic", max_length=249, db_comment="Topic to send to."
                    ),
                ),
                (
                    "kafka_key",
                    models.CharField(
                        "key",
                        max_length=255,
                        db_comment="Message key: the unit of order.",
                    ),
                ),
                (
                    "kafka_value",
                    models.TextField(
                        "value",
                        null=True,
                        db_comment=(
                            "Text value; null with a null kafka_value_bytes is a "
                            "tombstone."
                        ),
                    ),
                ),
                (
                    "kafka_header_keys",
                    TextArrayField(
                        verbose_name="header names",
                        db_default=empty_array(),
                        db_comment="Names of the headers, in their order.",
                    ),
                ),
                (
                    "kafka_header_values",
                    TextArrayField(
                        verbose_name="header values",
                        db_default=empty_array(),
                        db_comment="Values of the headers; as many as names.",
                    ),
                ),
                (
                    "kafka_value_bytes",
                    models.BinaryField(
                        "binary value",
                        null=True,
                        db_comment="Value that is not text; excludes kafka_value.",
                    ),
                ),
                (
                    "message_id",
                    models.UUIDField(
                        "message id",
                        db_default=RandomUUID(),
                        db_comment="The consumers' idempotency key; never used again.",
                    ),
                ),
                (
                    "kafka_partition",
                    models.IntegerField(
                        "partition",
                        null=True,
                        db_comment="Partition that the writer chose; null: by the key.",
                    ),
                ),
                (
                    "cluster_id",
                    models.SmallIntegerField(
                        "cluster",
                        db_default=CLUSTER_ID,
                        db_comment="Cluster in which the row was written.",
                    ),
                ),
            ],
            options={
                "verbose_name": "staged record",
                "verbose_name_plural": "staged records",
                "db_table": f"{TABLE}_staged",
                "db_table_comment": (
                    "Messages that wait for their series or for their time."
                ),
                "ordering": ("staged_id",),
                "default_permissions": ("view",),
                "constraints": [
                    models.CheckConstraint(
                        name="outbox_staged_topic_name",
                        condition=models.Q(kafka_topic__regex=r"^[A-Za-z0-9._-]+$")
                        & ~models.Q(kafka_topic__regex=r"^(__|\.\.?$)|\.ledger$"),
                    ),
                    models.CheckConstraint(
                        name="outbox_staged_one_value",
                        condition=models.Q(kafka_value__isnull=True)
                        | models.Q(kafka_value_bytes__isnull=True),
                    ),
                    models.CheckConstraint(
                        name="outbox_staged_headers_paired",
                        condition=Exact(
                            cardinality("kafka_header_keys"),
                            cardinality("kafka_header_values"),
                        ),
                    ),
                    models.CheckConstraint(
                        name="outbox_staged_partition_not_negative",
                        condition=models.Q(kafka_partition__gte=0),
                    ),
                    models.CheckConstraint(
                        name="outbox_staged_value_size",
                        condition=LessThanOrEqual(
                            Greatest(
                                octets("kafka_value"), octets("kafka_value_bytes")
                            ),
                            16_777_216,
                        ),
                    ),
                    models.CheckConstraint(
                        name="outbox_staged_headers_size",
                        condition=LessThanOrEqual(header_bytes(), 65_536),
                    ),
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
        storage(f"{TABLE}_staged"),
        index(f"{TABLE}_staged_due"),
        index(f"{TABLE}_staged_series"),
    ]
