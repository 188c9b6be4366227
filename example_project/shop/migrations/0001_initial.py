"""The shop's orders."""

from __future__ import annotations

import django.core.validators
from django.db import migrations, models

import shop.models


class Migration(migrations.Migration):
    """The first tables."""

    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Order",
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
                (
                    "customer",
                    models.CharField(
                        max_length=100, validators=[shop.models.validate_encodable]
                    ),
                ),
                (
                    "sku",
                    models.CharField(
                        help_text="Letters, digits and hyphens, such as TEA-100.",
                        max_length=40,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Za-z0-9-]+\\Z", "Use letters, digits and hyphens."
                            )
                        ],
                        verbose_name="article",
                    ),
                ),
                (
                    "quantity",
                    models.PositiveIntegerField(
                        default=1,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000),
                        ],
                    ),
                ),
                (
                    "amount",
                    models.DecimalField(
                        decimal_places=2,
                        max_digits=10,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("placed", "Placed"),
                            ("paid", "Paid"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="placed",
                        max_length=10,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("message_id", models.UUIDField(editable=False, null=True)),
            ],
            options={"ordering": ("-id",)},
        ),
    ]
