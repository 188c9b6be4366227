"""What an operator has paused; the leader reads it every second."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..conf import schema_settings


class Pause(models.Model):
    """One pause: of a key, of a topic, or of the whole outbox."""

    id = models.BigAutoField(primary_key=True)
    kafka_topic = models.CharField(
        _("topic"),
        max_length=249,
        blank=True,
        db_comment="The topic; empty: all topics.",
    )
    # A key may be empty.
    kafka_key = models.CharField(  # noqa: DJ001
        _("key"),
        max_length=255,
        null=True,
        blank=True,
        db_comment="The key; null: all keys of the topic.",
    )
    paused_at = models.DateTimeField(_("paused at"), db_default=Now())
    reason = models.CharField(
        _("reason"), max_length=200, blank=True, db_default="", db_comment="Why."
    )

    class Meta:
        db_table = f"{schema_settings().TABLE}_pauses"
        db_table_comment = "What is not sent for now: topics, keys, or everything."
        verbose_name = _("pause")
        verbose_name_plural = _("pauses")
        ordering = ("id",)
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                fields=["kafka_topic", "kafka_key"],
                name=f"{schema_settings().TABLE}_pauses_key",
            ),
            models.UniqueConstraint(
                fields=["kafka_topic"],
                condition=Q(kafka_key__isnull=True),
                name=f"{schema_settings().TABLE}_pauses_topic",
            ),
            models.CheckConstraint(
                name="outbox_pauses_key_of_a_topic",
                condition=~Q(kafka_topic="") | Q(kafka_key__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return self.kafka_topic or "everything"
