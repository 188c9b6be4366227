"""Invoices, and who may write them now."""

from __future__ import annotations

from django.db import models
from shop.models import Order

from django_outbox.contrib import leadership


class Leadership(leadership.Leadership):
    """The present leader id of each of billing's singletons."""


class Invoice(models.Model):
    """The bill of one order."""

    order = models.OneToOneField(Order, models.PROTECT, related_name="invoice")
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    leader_id = models.UUIDField(editable=False)
    """Under which leader id it was written: shows that one process works."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"invoice {self.pk}"
