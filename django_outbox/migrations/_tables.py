"""Columns and constraints that tables of messages share in the initial migration."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models.functions import Greatest, Now
from django.db.models.lookups import Exact, LessThanOrEqual

from django_outbox.conf import schema_settings
from django_outbox.models.arrays import TextArrayField

CLUSTER_ID: Final = schema_settings().CLUSTER_ID

FIRST_DATE: Final = datetime.min.replace(tzinfo=UTC)
LAST_DATE: Final = datetime.max.replace(tzinfo=UTC)
"""The range of dates that Python can hold."""

Fields: TypeAlias = "list[tuple[str, models.Field[Any, Any]]]"


def message_columns(**own: models.Field[Any, Any]) -> Fields:
    """Return the fields of a table of messages: its own, then those that all have."""
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
            db_comment="Binary value; excludes kafka_value.",
        ),
        "message_id": models.UUIDField(
            "message id",
            db_default=RandomUUID(),
            db_comment="The idempotency key for consumers.",
        ),
        "kafka_partition": models.IntegerField(
            "partition",
            null=True,
            db_comment="Partition chosen by the writer; null: chosen by the key.",
        ),
        "cluster_id": models.SmallIntegerField(
            "cluster",
            db_default=CLUSTER_ID,
            db_comment="Cluster in which the row was written.",
        ),
    }
    return [*own.items(), *shared.items()]


def record_columns(**own: models.Field[Any, Any]) -> Fields:
    """Return the fields of a table of messages that are sent: with their attempts."""
    return [
        *message_columns(**own),
        (
            "attempts",
            models.SmallIntegerField(
                "attempts", db_default=0, db_comment="Failed deliveries."
            ),
        ),
        (
            "last_error",
            models.TextField(
                "last error", db_default="", db_comment="Why the last delivery failed."
            ),
        ),
    ]


def message_constraints(prefix: str) -> list[models.BaseConstraint]:
    """Return what the database refuses in a table that applications write to."""
    return [
        models.CheckConstraint(
            name=f"{prefix}_topic_name",
            condition=models.Q(kafka_topic__regex=r"^[A-Za-z0-9._-]+$")
            & ~models.Q(kafka_topic__regex=r"^(__|\.\.?$)|\.ledger$"),
        ),
        models.CheckConstraint(
            name=f"{prefix}_one_value",
            condition=models.Q(kafka_value__isnull=True)
            | models.Q(kafka_value_bytes__isnull=True),
        ),
        models.CheckConstraint(
            name=f"{prefix}_headers_paired",
            condition=Exact(
                cardinality("kafka_header_keys"),
                cardinality("kafka_header_values"),
            ),
        ),
        models.CheckConstraint(
            name=f"{prefix}_partition_not_negative",
            condition=models.Q(kafka_partition__gte=0),
        ),
        models.CheckConstraint(
            name=f"{prefix}_value_size",
            condition=LessThanOrEqual(
                Greatest(octets("kafka_value"), octets("kafka_value_bytes")),
                16_777_216,
            ),
        ),
        models.CheckConstraint(
            name=f"{prefix}_headers_size",
            condition=LessThanOrEqual(header_bytes(), 65_536),
        ),
    ]


def date_in_range(field: str) -> models.Q:
    """Return the condition that a date is absent, or finite and in range."""
    return models.Q((f"{field}__gte", FIRST_DATE), (f"{field}__lte", LAST_DATE))


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
