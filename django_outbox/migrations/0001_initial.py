"""The outbox table, the parked table and the archive table."""

from __future__ import annotations

from typing import Any, Final

from django.contrib.postgres.functions import RandomUUID
from django.db import migrations, models, router
from django.db.models.functions import Greatest, Now
from django.db.models.lookups import Exact, LessThanOrEqual
from django.db.utils import NotSupportedError

from django_outbox.conf import schema_settings
from django_outbox.models.arrays import TextArrayField

TABLE: Final = schema_settings().TABLE
CLUSTER_ID: Final = schema_settings().CLUSTER_ID

SET_STORAGE: Final = f"""\
ALTER TABLE "{TABLE}" SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000,
    vacuum_truncate = false,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_cost_delay = 0,
    toast.vacuum_truncate = false
)"""
"""
For a queue: rows come, are marked once and go, and the table stays small.

Half of each page is kept free for the mark, so that it needs no new index
entry. A vacuum comes after so many dead rows and not after a share of the
table, does not pause, and does not lock the table to give pages back.
"""

RESET_STORAGE: Final = f"""\
ALTER TABLE "{TABLE}" RESET (
    fillfactor,
    autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_threshold,
    autovacuum_vacuum_insert_scale_factor,
    autovacuum_vacuum_insert_threshold,
    autovacuum_vacuum_cost_delay,
    autovacuum_analyze_scale_factor,
    autovacuum_analyze_threshold,
    vacuum_truncate,
    toast.autovacuum_vacuum_scale_factor,
    toast.autovacuum_vacuum_threshold,
    toast.autovacuum_vacuum_cost_delay,
    toast.vacuum_truncate
)"""


class RequirePostgreSQL(migrations.operations.base.Operation):
    """Refuse to make the tables where they could not work."""

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


def columns(**own: models.Field[Any, Any]) -> list[tuple[str, models.Field[Any, Any]]]:
    """Return the fields of a table: its own, then what all three have."""
    empty = models.Value([], output_field=TextArrayField())
    shared: dict[str, models.Field[Any, Any]] = {
        "create_time": models.DateTimeField(
            "created at",
            db_default=Now(),
            db_comment="When the row was inserted (statement time).",
        ),
        "kafka_topic": models.CharField(
            "topic", max_length=249, db_comment="Topic to send to."
        ),
        "kafka_key": models.CharField(
            "key", max_length=255, db_comment="Message key: the unit of order."
        ),
        "kafka_value": models.TextField(
            "value",
            null=True,
            db_comment="Text value; null with a null kafka_value_bytes is a tombstone.",
        ),
        "kafka_header_keys": TextArrayField(
            verbose_name="header names",
            db_default=empty,
            db_comment="Names of the headers, in their order.",
        ),
        "kafka_header_values": TextArrayField(
            verbose_name="header values",
            db_default=empty,
            db_comment="Values of the headers; as many as names.",
        ),
        "kafka_value_bytes": models.BinaryField(
            "binary value",
            null=True,
            db_comment="Value that is not text; excludes kafka_value.",
        ),
        "message_id": models.UUIDField(
            "message id",
            db_default=RandomUUID(),
            db_comment="The consumers' idempotency key; never used again.",
        ),
        "kafka_partition": models.IntegerField(
            "partition",
            null=True,
            db_comment="Partition that the writer chose; null: by the key.",
        ),
        "cluster_id": models.SmallIntegerField(
            "cluster",
            db_default=CLUSTER_ID,
            db_comment="Cluster in which the row was written.",
        ),
        "attempts": models.SmallIntegerField(
            "attempts", db_default=0, db_comment="Failed deliveries."
        ),
        "last_error": models.TextField(
            "last error", db_default="", db_comment="Why the last delivery failed."
        ),
    }
    return [*own.items(), *shared.items()]


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


class Migration(migrations.Migration):
    """Make the three tables; the settings TABLE and CLUSTER_ID shape them."""

    initial = True

    dependencies = ()

    operations = [
        RequirePostgreSQL(),
        migrations.CreateModel(
            name="OutboxRecord",
            fields=columns(
                id=models.BigAutoField(
                    primary_key=True, serialize=False, db_comment="Order of insertion."
                ),
                leader_id=models.UUIDField(
                    "leader",
                    null=True,
                    db_comment="The mark: the leader id that has claimed the row.",
                ),
            ),
            options={
                "verbose_name": "outbox record",
                "verbose_name_plural": "outbox records",
                "db_table": TABLE,
                "db_table_comment": "Messages that wait to be sent to Kafka.",
                "ordering": ("id",),
                "default_permissions": ("view",),
                "permissions": [("view_payload", "Can see keys, values and headers")],
                "constraints": [
                    models.CheckConstraint(
                        name="outbox_topic_name",
                        condition=models.Q(kafka_topic__regex=r"^[A-Za-z0-9._-]+$")
                        & ~models.Q(kafka_topic__regex=r"^(__|\.\.?$)|\.ledger$"),
                    ),
                    models.CheckConstraint(
                        name="outbox_one_value",
                        condition=models.Q(kafka_value__isnull=True)
                        | models.Q(kafka_value_bytes__isnull=True),
                    ),
                    models.CheckConstraint(
                        name="outbox_headers_paired",
                        condition=Exact(
                            cardinality("kafka_header_keys"),
                            cardinality("kafka_header_values"),
                        ),
                    ),
                    models.CheckConstraint(
                        name="outbox_partition_not_negative",
                        condition=models.Q(kafka_partition__gte=0),
                    ),
                    models.CheckConstraint(
                        name="outbox_value_size",
                        condition=LessThanOrEqual(
                            Greatest(
                                octets("kafka_value"), octets("kafka_value_bytes")
                            ),
                            16_777_216,
                        ),
                    ),
                    models.CheckConstraint(
                        name="outbox_headers_size",
                        condition=LessThanOrEqual(header_bytes(), 65_536),
                    ),
                ],
            },
        ),
        # The hint lets a router that looks at the model's name answer.
        migrations.RunSQL(
            SET_STORAGE, RESET_STORAGE, hints={"model_name": "outboxrecord"}
        ),
        migrations.CreateModel(
            name="ParkedRecord",
            fields=columns(
                parked_id=models.BigAutoField(primary_key=True, serialize=False),
                id=models.BigIntegerField(db_comment="The row's id in the outbox."),
                parked_at=models.DateTimeField("parked at", db_default=Now()),
            ),
            options={
                "verbose_name": "parked record",
                "verbose_name_plural": "parked records",
                "db_table": f"{TABLE}_parked",
                "db_table_comment": (
                    "Messages that were set aside because they kept failing."
                ),
                "ordering": ("id",),
                "default_permissions": ("view", "delete"),
                "permissions": [("release_parkedrecord", "Can release parked record")],
            },
        ),
        migrations.CreateModel(
            name="ArchivedRecord",
            fields=columns(
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
            },
        ),
    ]
