"""
Columns and constraints that the tables of messages share.

Rows move from one of these tables to another, column by column.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Greatest, Now
from django.db.models.lookups import Exact, LessThanOrEqual
from django.utils.translation import gettext_lazy as _

from ..conf import schema_settings
from ..settings.options import LEDGER_SUFFIX
from ..settings.rules import LARGEST_HEADERS, LARGEST_VALUE
from .arrays import TextArrayField

FIRST_DATE: Final = datetime.min.replace(tzinfo=UTC)
LAST_DATE: Final = datetime.max.replace(tzinfo=UTC)
"""The range of dates that Python can hold, and PostgreSQL can compute with."""


class ReadableTimeField(models.DateTimeField):  # type: ignore[type-arg]  # generic in the stubs only
    """
    A time that anybody may have written: None is one that Python cannot show.

    PostgreSQL has infinite times and years before 1 and after 9999, and the driver
    raises an error for them. The first and the last day of these years are out of
    range in some time zones. Filters and orders see the column as it is.
    """

    def deconstruct(self) -> Any:
        """Be Django's own field in migrations, since the column is the same."""
        name, _path, args, options = super().deconstruct()
        return name, "django.db.models.DateTimeField", args, options

    def select_format(self, compiler: Any, sql: str, params: Any) -> Any:
        """Leave out the first and the last day, so that all time zones can show it."""
        held = f"{sql} BETWEEN '0001-01-02 00:00+00' AND '9999-12-31 00:00+00'"
        return f"CASE WHEN {held} THEN {sql} END", (*params, *params)


class MessageColumns(models.Model):
    """The columns of every table of messages."""

    create_time = ReadableTimeField(
        _("created at"),
        db_default=Now(),
        db_comment="When the row was inserted (statement time).",
    )
    kafka_topic = models.CharField(
        _("topic"), max_length=249, db_comment="Topic to send to."
    )
    kafka_key = models.CharField(
        _("key"), max_length=255, db_comment="Message key: the unit of order."
    )
    kafka_value = models.TextField(  # noqa: DJ001  # null is not the empty text
        _("value"),
        null=True,
        db_comment="Text value; null with a null kafka_value_bytes is a tombstone.",
    )
    kafka_header_keys = TextArrayField(
        verbose_name=_("header names"),
        db_default=Value([], output_field=TextArrayField()),
        db_comment="Names of the headers, in their order.",
    )
    kafka_header_values = TextArrayField(
        verbose_name=_("header values"),
        db_default=Value([], output_field=TextArrayField()),
        db_comment="Values of the headers; as many as names.",
    )
    kafka_value_bytes = models.BinaryField(
        _("binary value"),
        null=True,
        db_comment="Binary value; excludes kafka_value.",
    )
    message_id = models.UUIDField(
        _("message id"),
        db_default=RandomUUID(),
        db_comment="The idempotency key for consumers.",
    )
    kafka_partition = models.IntegerField(
        _("partition"),
        null=True,
        db_comment="Partition chosen by the writer; null: chosen by the key.",
    )
    cluster_id = models.SmallIntegerField(
        _("cluster"),
        db_default=schema_settings().CLUSTER_ID,
        db_comment="Cluster in which the row was written.",
    )

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{getattr(self, 'id', None)} → {self.kafka_topic}"


class RecordColumns(MessageColumns):
    """The columns of messages that are sent: with their attempts."""

    attempts = models.SmallIntegerField(
        _("attempts"), db_default=0, db_comment="Failed deliveries."
    )
    last_error = models.TextField(
        _("last error"), db_default="", db_comment="Why the last delivery failed."
    )

    class Meta:
        abstract = True


def message_constraints(prefix: str) -> list[models.BaseConstraint]:
    """Return the constraints of a table that applications write to."""
    return [
        models.CheckConstraint(
            name=f"{prefix}_topic_name",
            # Two patterns without counts or lookahead, which would make an INSERT
            # five times as expensive.
            condition=Q(kafka_topic__regex=r"^[A-Za-z0-9._-]+$")
            & ~Q(kafka_topic__regex=rf"^(__|\.\.?$)|{re.escape(LEDGER_SUFFIX)}$"),
        ),
        models.CheckConstraint(
            name=f"{prefix}_one_value",
            condition=Q(kafka_value__isnull=True) | Q(kafka_value_bytes__isnull=True),
        ),
        models.CheckConstraint(
            name=f"{prefix}_headers_paired",
            condition=Exact(
                _cardinality("kafka_header_keys"),
                _cardinality("kafka_header_values"),
            ),
        ),
        models.CheckConstraint(
            name=f"{prefix}_partition_not_negative",
            condition=Q(kafka_partition__gte=0),
        ),
        # Each part of a check costs up to a microsecond an INSERT, whatever the row
        # contains: these are as short as possible.
        models.CheckConstraint(
            name=f"{prefix}_value_size",
            condition=LessThanOrEqual(
                Greatest(_octets("kafka_value"), _octets("kafka_value_bytes")),
                LARGEST_VALUE,
            ),
        ),
        models.CheckConstraint(
            name=f"{prefix}_headers_size",
            condition=LessThanOrEqual(_header_bytes(), LARGEST_HEADERS),
        ),
    ]


def date_in_range(field: str) -> Q:
    """Return the condition that a date is absent, or finite and in range."""
    return Q((f"{field}__gte", FIRST_DATE), (f"{field}__lte", LAST_DATE))


def _cardinality(field: str) -> Func:
    return Func(F(field), function="cardinality", output_field=models.IntegerField())


def _octets(field: str) -> Func:
    return Func(F(field), function="octet_length", output_field=models.IntegerField())


def _header_bytes() -> Func:
    """Return the size of both arrays joined: unlike a stored array, uncompressed."""
    both = Func(
        *(F("kafka_header_keys"), F("kafka_header_values")),
        template="(%(expressions)s)",
        arg_joiner=" || ",
        output_field=TextArrayField(),
    )
    return Func(both, function="pg_column_size", output_field=models.IntegerField())
