"""
Billing's tests: the leader's task without a leader, the consumer without Kafka.

Signals and messages are made by hand, in the place of a harvester.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from decimal import Decimal
from uuid import UUID, uuid4

from django.test import TestCase, TransactionTestCase
from shop import orders
from shop.models import Order, Status

from django_outbox import ConsumedMessage, signals
from django_outbox.events import LeaderAcquired, LeaderFenced, LeaderRevoked
from django_outbox.models import OutboxRecord
from django_outbox.postgres.outbox_identity import named_settings

from .accounts import ACCOUNTS
from .consumers import keep_accounts
from .models import Account, Invoice, Leadership
from .tasks import UNIT, invoice_run


def place(customer: str = "Ada") -> Order:
    return orders.place(customer=customer, sku="TEA-1", quantity=1, amount=Decimal(3))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


class InvoiceRunTest(TransactionTestCase):
    def setUp(self) -> None:
        self.leader_id = str(uuid4())

    def run_once(self) -> None:
        invoice_run.apply(kwargs={"leader_id": self.leader_id}, throw=True)

    def lead(self) -> None:
        name, leader_id = invoice_run.name, self.leader_id
        Leadership.objects.claim(name, leader_id, is_fresh=lambda: True)

    def test_every_order_gets_one_invoice(self) -> None:
        for _ in range(UNIT + 1):
            place()
        self.lead()
        self.run_once()
        self.run_once()
        self.assertEqual(Invoice.objects.count(), UNIT + 1)
        writers = {invoice.leader_id for invoice in Invoice.objects.all()}
        self.assertEqual(writers, {UUID(self.leader_id)})

    def test_a_cancelled_order_gets_none(self) -> None:
        orders.change(place().pk, Status.CANCELLED)
        self.lead()
        self.run_once()
        self.assertEqual(Invoice.objects.count(), 0)

    def test_who_does_not_lead_writes_none(self) -> None:
        place()
        self.run_once()
        self.assertEqual(Invoice.objects.count(), 0)

    def test_the_leader_writes_them_until_it_is_revoked(self) -> None:
        place()
        signals.send(LeaderAcquired(name="a", leader_id=self.leader_id))
        until(lambda: Invoice.objects.count() == 1)
        signals.send(LeaderRevoked(name="a", leader_id=self.leader_id))
        place()
        self.run_once()
        self.assertEqual(Invoice.objects.count(), 1)

    def test_a_fenced_leader_writes_no_more(self) -> None:
        signals.send(LeaderAcquired(name="a", leader_id=self.leader_id))
        signals.send(LeaderFenced(name="a", leader_id=self.leader_id, reason=""))
        place()
        self.run_once()
        self.assertEqual(Invoice.objects.count(), 0)


def told(order: int, event: dict[str, str] | None) -> ConsumedMessage:
    """A message as the harvester sends it."""
    return ConsumedMessage(
        topic=orders.ORDERS,
        key=str(order).encode(),
        value=None if event is None else json.dumps(event).encode(),
        headers=(("outbox-source", named_settings().source.encode()),),
    )


class AccountsTest(TestCase):
    def place(self, order: int, amount: str) -> None:
        event = {"status": "placed", "customer": "Ada", "amount": amount}
        keep_accounts(told(order, event))

    def owed(self) -> Decimal:
        return Account.objects.get(customer="Ada").owed

    def test_orders_are_owed_until_they_are_paid_or_cancelled(self) -> None:
        for order in (1, 2, 3):
            self.place(order, "2.50")
        self.assertEqual(self.owed(), Decimal("7.50"))
        keep_accounts(told(1, {"status": "paid"}))
        keep_accounts(told(2, None))
        self.assertEqual(self.owed(), Decimal("2.50"))

    def test_each_change_is_told_with_its_commit(self) -> None:
        self.place(1, "2.50")
        keep_accounts(told(1, None))
        rows = OutboxRecord.objects.filter(kafka_topic=ACCOUNTS).order_by("id")
        told_amounts = [json.loads(row.kafka_value or "")["owed"] for row in rows]
        self.assertEqual(told_amounts, ["2.50", "0.00"])

    def test_another_shops_orders_are_none_of_billings(self) -> None:
        keep_accounts(ConsumedMessage(topic=orders.ORDERS, key=b"1", value=b"{}"))
        self.assertFalse(Account.objects.exists())
