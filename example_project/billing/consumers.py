"""
Billing consumes the shop's orders: `manage.py runconsumer`.

Each message has its effect once, although amounts are added and subtracted:
runconsumer records the message in the same transaction. Messages that the
handler stashes are committed with it, too.
"""

from __future__ import annotations

from decimal import Decimal

from shop.orders import ORDERS

from django_outbox import ConsumedMessage, consumer
from django_outbox.postgres.outbox_identity import named_settings

from . import accounts


@consumer(ORDERS, group="billing")
def keep_accounts(message: ConsumedMessage) -> None:
    """Charge placed orders; settle paid and cancelled ones."""
    if message.source not in named_settings().sources:
        # From another shop in the same topic, with its own order numbers.
        return
    order = int(message.key_text())
    event = message.json()
    if event and event["status"] == "placed":
        accounts.charge(
            order=order, customer=event["customer"], amount=Decimal(event["amount"])
        )
    else:
        accounts.settle(order)
