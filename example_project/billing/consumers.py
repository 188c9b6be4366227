"""
Billing listens to the shop: `manage.py runconsumer`.

Each message has its effect once, although amounts are added and subtracted:
runconsumer notes the message in the transaction of the effect. What `stash()`
writes there is on its way to Kafka with the same commit.
"""

from __future__ import annotations

from decimal import Decimal

from shop.orders import ORDERS

from django_outbox import ConsumedMessage, consumer
from django_outbox.postgres.outbox_identity import named_settings

from . import accounts


@consumer(ORDERS, group="billing")
def keep_accounts(message: ConsumedMessage) -> None:
    """Charge orders that are placed; settle those that are paid or cancelled."""
    if message.source not in named_settings().sources:
        # Another shop's, in the same topic: its orders have numbers of their own.
        return
    order = int(message.key_text())
    event = message.json()
    if event and event["status"] == "placed":
        accounts.charge(
            order=order, customer=event["customer"], amount=Decimal(event["amount"])
        )
    else:
        accounts.settle(order)
