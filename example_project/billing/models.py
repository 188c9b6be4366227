"""Invoices, who may write them now, and what customers owe."""

from __future__ import annotations

from django.db import models
from shop.models import Order

from django_outbox.contrib import fencing


class Leadership(fencing.Leadership):
    """The current leader id of each of billing's singleton tasks."""


class Invoice(models.Model):
    """The bill of one order."""

    order = models.OneToOneField(Order, models.PROTECT, related_name="invoice")
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    leader_id = models.UUIDField(editable=False)
    """Leader id of the process that wrote it: shows that only one writes."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"invoice {self.pk}"


class Account(models.Model):
    """What a customer owes for orders that are neither paid nor cancelled."""

    customer = models.CharField(max_length=100, primary_key=True)
    owed = models.DecimalField(max_digits=14, decimal_places=2, default=0)

    class Meta:
        ordering = ("customer",)

    def __str__(self) -> str:
        return f"account of {self.customer}"


class Charge(models.Model):
    """
    An order on its customer's account.

    Without a foreign key: billing knows orders from messages alone.
    """

    order = models.BigIntegerField(primary_key=True)
    customer = models.CharField(max_length=100)
    amount = models.DecimalField(max_digits=10, decimal_places=2)

    class Meta:
        ordering = ("order",)

    def __str__(self) -> str:
        return f"charge for order {self.order}"
