"""Which outbox this is: one row that goes wherever the data goes."""

from __future__ import annotations

from typing import Final

from django.db import migrations

from django_outbox.conf import schema_settings

TABLE: Final = schema_settings().TABLE

IDENTIFY: Final = f"""
CREATE TABLE "{TABLE}_identity" (
    is_only boolean PRIMARY KEY DEFAULT true
        CONSTRAINT "outbox_identity_is_only" CHECK (is_only),
    outbox uuid NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamp with time zone NOT NULL DEFAULT now()
);
COMMENT ON TABLE "{TABLE}_identity" IS
    'Which outbox this is: one row, made by migrate, and the same in a copy.';
COMMENT ON COLUMN "{TABLE}_identity".outbox IS
    'Names the leader topic and the leader group, and stands in every heartbeat.';
INSERT INTO "{TABLE}_identity" DEFAULT VALUES;
"""
"""A table without a model: `flush`, and Django's tests with it, empty every other."""


class Migration(migrations.Migration):
    """Give the outbox its identity; the setting TABLE names the table."""

    dependencies = (("django_outbox", "0004_archive_by_day"),)

    operations = (
        migrations.RunSQL(
            IDENTIFY,
            f'DROP TABLE "{TABLE}_identity"',
            hints={"model_name": "outboxrecord"},
        ),
    )
