"""What customers owe, as billing's consumer keeps it."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Accounts and the charges on them."""

    dependencies = [("billing", "0001_initial")]
    operations = [
        migrations.CreateModel(
            name="Account",
            fields=[
                (
                    "customer",
                    models.CharField(max_length=100, primary_key=True, serialize=False),
                ),
                (
                    "owed",
                    models.DecimalField(decimal_places=2, default=0, max_digits=14),
                ),
            ],
            options={"ordering": ("customer",)},
        ),
        migrations.CreateModel(
            name="Charge",
            fields=[
                ("order", models.BigIntegerField(primary_key=True, serialize=False)),
                ("customer", models.CharField(max_length=100)),
                ("amount", models.DecimalField(decimal_places=2, max_digits=10)),
            ],
            options={"ordering": ("order",)},
        ),
    ]
