"""Billing's invoices and the leadership of its singletons."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """The first tables."""

    initial = True
    dependencies = [("shop", "0001_initial")]
    operations = [
        migrations.CreateModel(
            name="Leadership",
            fields=[
                (
                    "name",
                    models.CharField(
                        max_length=255,
                        primary_key=True,
                        serialize=False,
                        verbose_name="name",
                    ),
                ),
                ("leader_id", models.UUIDField(null=True, verbose_name="leader id")),
                ("version", models.BigIntegerField(default=0, verbose_name="version")),
            ],
            options={
                "verbose_name": "leadership",
                "verbose_name_plural": "leaderships",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Invoice",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("amount", models.DecimalField(decimal_places=2, max_digits=10)),
                ("leader_id", models.UUIDField(editable=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "order",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="invoice",
                        to="shop.order",
                    ),
                ),
            ],
            options={"ordering": ("id",)},
        ),
    ]
