"""
Staged messages: messages of a series, and delayed messages.

The application writes both tables and moves a released series into the outbox; the
leader moves delayed messages that are due, and closes expired series. Every writer of a
series locks its row first, so that writers follow one after the other.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..conf import schema_settings
from .columns import (
    MessageColumns,
    ReadableTimeField,
    date_in_range,
    message_constraints,
)


class SeriesState(models.TextChoices):
    """The state of a series; only an open series accepts messages."""

    OPEN = "open", _("open")
    EXPIRING = "expiring", _("expiring")
    """It has expired; the leader is moving its messages away."""
    RELEASED = "released", _("released")
    DISCARDED = "discarded", _("discarded")
    EXPIRED = "expired", _("expired")


class SeriesQuerySet(models.QuerySet["Series"]):
    """Queries of series."""

    def open(self) -> SeriesQuerySet:
        """Return the series that can be released."""
        return self.filter(state=SeriesState.OPEN)


class StagedQuerySet(models.QuerySet["StagedRecord"]):
    """Queries of staged messages."""

    def in_series(self) -> StagedQuerySet:
        """Return the messages of series."""
        return self.filter(series__isnull=False)

    def delayed(self) -> StagedQuerySet:
        """Return the delayed messages."""
        return self.filter(not_before__isnull=False)


class Series(models.Model):
    """Messages that are sent together. Its row is kept to refuse late messages."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(_("name"), max_length=255, db_comment="Name of the series.")
    created_at = models.DateTimeField(
        _("created at"),
        db_default=Now(),
        db_comment="When it was opened.",
    )
    expected = models.IntegerField(
        _("expected"),
        null=True,
        db_comment="Number of messages that completes it, or null.",
    )
    staged = models.IntegerField(
        _("staged"), db_default=0, db_comment="Number of messages staged so far."
    )
    state = models.CharField(
        _("state"),
        max_length=9,
        choices=SeriesState.choices,
        db_default=SeriesState.OPEN,
        db_comment="open, expiring, released, discarded or expired.",
    )
    expires_at = ReadableTimeField(
        _("expires at"), null=True, db_comment="When it expires; null: never."
    )
    on_timeout = models.CharField(
        _("on time-out"),
        max_length=7,
        choices=[("park", _("park")), ("discard", _("discard"))],
        db_default="park",
        db_comment="What happens to its messages then: park or discard.",
    )
    closed_at = ReadableTimeField(
        _("closed at"),
        null=True,
        db_comment="When it was released, discarded or expired.",
    )

    objects = SeriesQuerySet.as_manager()

    class Meta:
        db_table = f"{schema_settings().TABLE}_series"
        db_table_comment = "Series of messages that are sent together."
        verbose_name = _("series")
        verbose_name_plural = _("series")
        ordering = ("id",)
        default_permissions = ("view",)
        permissions = [
            ("release_series", _("Can release series")),
            ("discard_series", _("Can discard series")),
        ]
        constraints = [
            # Its index belongs to the schema and needs the table's name.
            models.UniqueConstraint(
                fields=["name"], name=f"{schema_settings().TABLE}_series_name"
            ),
            models.CheckConstraint(
                name="outbox_series_dates_in_range",
                condition=date_in_range("expires_at") & date_in_range("closed_at"),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class StagedRecord(MessageColumns):
    """A message of a series, or a delayed message."""

    staged_id = models.BigAutoField(primary_key=True, db_comment="Order of staging.")
    # The migration creates an index that has the order, too.
    series = models.ForeignKey(
        Series,
        models.PROTECT,
        verbose_name=_("series"),
        null=True,
        db_index=False,
        related_name="records",
        db_comment="The series of the message.",
    )
    not_before = ReadableTimeField(
        _("not before"),
        null=True,
        db_comment="When the leader moves it into the outbox.",
    )

    objects = StagedQuerySet.as_manager()

    class Meta:
        db_table = f"{schema_settings().TABLE}_staged"
        db_table_comment = "Messages of open series, and delayed messages."
        verbose_name = _("staged record")
        verbose_name_plural = _("staged records")
        ordering = ("staged_id",)
        default_permissions = ("view",)
        constraints = [
            *message_constraints("outbox_staged"),
            models.CheckConstraint(
                name="outbox_staged_date_in_range",
                condition=date_in_range("not_before"),
            ),
            models.CheckConstraint(
                name="outbox_staged_waits_for_one",
                condition=Q(series__isnull=True, not_before__isnull=False)
                | Q(series__isnull=False, not_before__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.staged_id} → {self.kafka_topic}"
