"""
A better function that maintains the archive.

It deletes old rows that are in no day's partition in pieces, and moves a few rows
whose day has no partition yet. It replaces a function and locks no table. Harvesters of
the former release call it, too.
"""

from __future__ import annotations

from django.db import migrations

from django_outbox.migrations import _sql


class Migration(migrations.Migration):
    """Replace the function."""

    dependencies = [("django_outbox", "0002_pause")]

    operations = [
        migrations.RunSQL(
            _sql.TEND, migrations.RunSQL.noop, hints={"model_name": "archivedrecord"}
        ),
    ]
