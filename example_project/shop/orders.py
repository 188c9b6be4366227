"""
What can be done with an order; each change and its messages are one commit.

Topic `orders` carries the present state of each order under its id; a
cancelled one ends in a tombstone, which a compacted topic forgets the order
by. Topic `order-audit` tells each customer's changes one after the other.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from django.db import transaction

from django_outbox import stash

from .models import Order, Status

ORDERS: Final = "orders"
AUDIT: Final = "order-audit"


class IllegalChange(Exception):
    """An order cannot go from its status to the one that was asked for."""


def place(*, customer: str, sku: str, quantity: int, amount: Decimal) -> Order:
    """Place an order."""
    with transaction.atomic():
        order = Order.objects.create(
            customer=customer, sku=sku, quantity=quantity, amount=amount
        )
        return _tell(order)


def change(order_id: int, status: Status) -> Order:
    """
    Bring an order to another status.

    Raises:
        Order.DoesNotExist: there is no such order.
        IllegalChange: its status forbids that.
    """
    with transaction.atomic():
        # Writers of one key wait for each other here, so that the messages of
        # an order are sent in the order of the commits.
        order = Order.objects.select_for_update().get(pk=order_id)
        if not Status(order.status).can_become(status):
            raise IllegalChange(f"Order {order_id} is {order.status} already.")
        order.status = status
        return _tell(order)


def _tell(order: Order) -> Order:
    """Stash what happened, inside the caller's transaction, and save the order."""
    headers = {"event-type": f"order-{order.status}"}
    is_gone = order.status == Status.CANCELLED
    order.message_id = stash(
        ORDERS,
        key=str(order.pk),
        value=None if is_gone else _as_event(order),
        headers=headers,
    )
    # No row is locked that all orders of a customer share: ordered=True is.
    stash(
        AUDIT,
        key=order.customer,
        value={"order": order.pk, "status": order.status},
        headers=headers,
        ordered=True,
    )
    order.save(update_fields=["status", "message_id"])
    return order


def _as_event(order: Order) -> dict[str, object]:
    return {
        "order": order.pk,
        "customer": order.customer,
        "sku": order.sku,
        "quantity": order.quantity,
        "amount": order.amount,
        "status": order.status,
        "created_at": order.created_at,
    }
