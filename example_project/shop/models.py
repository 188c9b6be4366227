"""The shop's orders."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models


def validate_encodable(text: str) -> None:
    """Refuse lone surrogates, which JSON may contain but a database cannot store."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValidationError("Enter text without broken characters.") from None


class Status(models.TextChoices):
    """Status of an order."""

    PLACED = "placed"
    PAID = "paid"
    CANCELLED = "cancelled"

    def can_become(self, other: Status) -> bool:
        """Whether an order may go from this status to the other."""
        return self is Status.PLACED and other is not Status.PLACED


class Order(models.Model):
    """An order of a customer."""

    customer = models.CharField(max_length=100, validators=[validate_encodable])
    sku = models.CharField(
        "article",
        max_length=40,
        help_text="Letters, digits and hyphens, such as TEA-100.",
        validators=[
            RegexValidator(r"^[A-Za-z0-9-]+\Z", "Use letters, digits and hyphens.")
        ],
    )
    quantity = models.PositiveIntegerField(
        default=1, validators=[MinValueValidator(1), MaxValueValidator(1000)]
    )
    amount = models.DecimalField(
        max_digits=10, decimal_places=2, validators=[MinValueValidator(0)]
    )
    status = models.CharField(
        max_length=10, choices=Status.choices, default=Status.PLACED
    )
    created_at = models.DateTimeField(auto_now_add=True)
    message_id = models.UUIDField(null=True, editable=False)
    """Id of the newest message about this order, for a look-up in the outbox."""

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"order {self.pk}"
