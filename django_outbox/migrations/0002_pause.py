"""
The table of pauses.

It is small, and nothing but the verbs of `manage.py outbox` writes to it: the migration
locks no other table. A harvester of the former release does not know it; one of this
release does without it.
"""

from __future__ import annotations

from typing import Final

from django.db import migrations, models
from django.db.models.functions import Now

from django_outbox.conf import schema_settings

TABLE: Final = schema_settings().TABLE


class Migration(migrations.Migration):
    """Create the table."""

    dependencies = [("django_outbox", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Pause",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "kafka_topic",
                    models.CharField(
                        "topic",
                        max_length=249,
                        blank=True,
                        db_comment="The topic; empty: all topics.",
                    ),
                ),
                (
                    "kafka_key",
                    models.CharField(
                        "key",
                        max_length=255,
                        null=True,
                        blank=True,
                        db_comment="The key; null: all keys of the topic.",
                    ),
                ),
                ("paused_at", models.DateTimeField("paused at", db_default=Now())),
                (
                    "reason",
                    models.CharField(
                        "reason",
                        max_length=200,
                        blank=True,
                        db_default="",
                        db_comment="Why.",
                    ),
                ),
            ],
            options={
                "verbose_name": "pause",
                "verbose_name_plural": "pauses",
                "db_table": f"{TABLE}_pauses",
                "db_table_comment": (
                    "What is not sent for now: topics, keys, or everything."
                ),
                "ordering": ("id",),
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(
                        fields=["kafka_topic", "kafka_key"],
                        name=f"{TABLE}_pauses_key",
                    ),
                    models.UniqueConstraint(
                        fields=["kafka_topic"],
                        condition=models.Q(kafka_key__isnull=True),
                        name=f"{TABLE}_pauses_topic",
                    ),
                    models.CheckConstraint(
                        name="outbox_pauses_key_of_a_topic",
                        condition=~models.Q(kafka_topic="")
                        | models.Q(kafka_key__isnull=True),
                    ),
                ],
            },
        ),
    ]
