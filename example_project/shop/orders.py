"""
Operations on orders; a change and its messages are one commit.

Topic `orders` has the current state of each order, with its id as the key. A
cancelled order gets a tombstone, so that a compacted topic removes it. Topic
`order-audit` has the changes of each customer in order.
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
    """An order cannot change from its status to the requested one."""


def place(*, customer: str, sku: str, quantity: int, amount: Decimal) -> Order:
    """Place an order."""
    with transaction.atomic():
        order = Order.objects.create(
            customer=customer, sku=sku, quantity=quantity, amount=amount
        )
        return _tell(order)


def change(order_id: int, status: Status) -> Order:
    """
    Change the status of an order.

    Raises:
        Order.DoesNotExist: there is no such order.
        IllegalChange: its current status does not allow the change.
    """
    with transaction.atomic():
        # The row lock serializes writers of one key, so that the messages of an
        # order are sent in the order of the commits.
        order = Order.objects.select_for_update().get(pk=order_id)
        if not Status(order.status).can_become(status):
            raise IllegalChange(f"Order {order_id} is {order.status} already.")
        order.status = status
        return _tell(order)


def _tell(order: Order) -> Order:
    """Stash the messages in the caller's transaction, and save the order."""
    headers = {"event-type": f"order-{order.status}"}
    is_gone = order.status == Status.CANCELLED
    order.message_id = stash(
        ORDERS,
        key=str(order.pk),
        value=None if is_gone else _as_event(order),
        headers=headers,
    )
    # Orders of one customer share no row lock, so ordered=True serializes them.
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
