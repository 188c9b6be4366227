"""The invoice run: periodic work for one process at a time."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from shop.models import Order, Status

from django_outbox.contrib.celery import leader_task
from django_outbox.contrib.singleton import LeaderRun

from .models import Invoice, Leadership

UNIT: Final = 50
"""Orders per unit of work; a new leader waits for the current unit."""


@leader_task(Leadership.objects, interval=settings.BILLING_INTERVAL)
def invoice_run(run: LeaderRun) -> None:
    """Write an invoice for every order without one."""
    is_done = False
    while not is_done:
        with run.unit():
            # A locked order is being changed; the next run handles it.
            orders = Order.objects.filter(invoice=None).exclude(status=Status.CANCELLED)
            free = orders.select_for_update(of=("self",), skip_locked=True)
            batch = list(free.order_by("id")[:UNIT])
            Invoice.objects.bulk_create(
                Invoice(order=order, amount=order.amount, leader_id=run.leader_id)
                for order in batch
            )
            is_done = len(batch) < UNIT
