"""The tables of consumers: processed keys, and offsets beside the effects."""

from __future__ import annotations

from typing import Final

from django.core.serializers.json import DjangoJSONEncoder
from django.db import migrations, models
from django.db.models.functions import Now

from django_outbox.conf import schema_settings

TABLE: Final = schema_settings().TABLE


class Migration(migrations.Migration):
    """Make both; the setting TABLE names them."""

    dependencies = (("django_outbox", "0001_initial"),)

    operations = (
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
                        db_comment="Who processed it; each consumer has keys of "
                        "its own.",
                    ),
                ),
                (
                    "key",
                    models.CharField(
                        "key",
                        max_length=512,
                        db_comment="The message id, or whatever else is unique.",
                    ),
                ),
                (
                    "processed_at",
                    models.DateTimeField(
                        "processed at",
                        db_default=Now(),
                        db_index=True,
                        db_comment="When the transaction of its effects did it.",
                    ),
                ),
                (
                    "response",
                    models.JSONField(
                        "response",
                        null=True,
                        encoder=DjangoJSONEncoder,
                        db_comment="What the first time answered; a repeat answers "
                        "the same.",
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
                        db_comment="Kafka's id of the topic, which another topic of "
                        "its name lacks.",
                    ),
                ),
                (
                    "updated_at",
                    models.DateTimeField(
                        "updated at",
                        db_default=Now(),
                        db_comment="When it last moved.",
                    ),
                ),
            ],
            options={
                "verbose_name": "consumer offset",
                "verbose_name_plural": "consumer offsets",
                "db_table": f"{TABLE}_offsets",
                "db_table_comment": "How far consumers have come (setting OFFSETS).",
                "ordering": ("group_id", "topic", "partition"),
                "default_permissions": ("view",),
            },
        ),
    )
