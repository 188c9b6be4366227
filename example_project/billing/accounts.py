"""
What customers owe: billing's own view of the shop's orders.

Topic `accounts` has the current balance of each customer.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from django_outbox import stash

from .models import Account, Charge

ACCOUNTS: Final = "accounts"


def charge(*, order: int, customer: str, amount: Decimal) -> None:
    """Charge an order to its customer's account; needs a transaction."""
    Charge.objects.create(order=order, customer=customer, amount=amount)
    _move(customer, amount)


def settle(order: int) -> None:
    """Remove the charge of a paid or cancelled order; needs a transaction."""
    found = Charge.objects.filter(order=order).first()
    if found:
        found.delete()
        _move(found.customer, -found.amount)


def _move(customer: str, amount: Decimal) -> None:
    """Change a customer's balance and publish it, in the order of the commits."""
    Account.objects.get_or_create(customer=customer)
    account = Account.objects.select_for_update().get(customer=customer)
    account.owed += amount
    account.save()
    stash(
        ACCOUNTS,
        key=customer,
        value={"customer": customer, "owed": account.owed},
        headers={"event-type": "balance-changed"},
    )
