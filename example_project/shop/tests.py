"""
The shop's tests: an app tests what it stashes as it tests any row.

Run with `manage.py test`, in Django's own TestCase: it needs no Kafka.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.test import Client, TestCase
from django.urls import reverse

from django_outbox.models import OutboxRecord, ParkedRecord

from . import orders
from .models import Order, Status

FILLED_IN = {"customer": "Ada", "sku": "TEA-100", "quantity": "2", "amount": "7.50"}


def place(customer: str = "Ada") -> Order:
    return orders.place(
        customer=customer, sku="TEA-100", quantity=2, amount=Decimal("7.50")
    )


def stashed(topic: str) -> list[OutboxRecord]:
    return list(OutboxRecord.objects.filter(kafka_topic=topic).order_by("id"))


class OrdersTest(TestCase):
    def test_an_order_and_its_messages_are_written_together(self) -> None:
        order = place()
        (state,), (change,) = stashed(orders.ORDERS), stashed(orders.AUDIT)
        self.assertEqual(state.kafka_key, str(order.pk))
        self.assertEqual(json.loads(state.kafka_value or "")["amount"], "7.50")
        self.assertEqual(state.kafka_header_values, ["order-placed"])
        self.assertEqual(state.message_id, order.message_id)
        self.assertEqual(change.kafka_key, "Ada")

    def test_an_order_that_is_rolled_back_is_never_told(self) -> None:
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            place()
            _ = 1 / 0
        self.assertEqual(OutboxRecord.objects.count(), 0)

    def test_a_cancelled_order_ends_in_a_tombstone(self) -> None:
        orders.change(place().pk, Status.CANCELLED)
        _placed, tombstone = stashed(orders.ORDERS)
        self.assertIsNone(tombstone.kafka_value)

    def test_a_paid_order_cannot_be_cancelled(self) -> None:
        order = orders.change(place().pk, Status.PAID)
        with self.assertRaises(orders.IllegalChange):
            orders.change(order.pk, Status.CANCELLED)
        self.assertEqual(len(stashed(orders.ORDERS)), 2)


class PageTest(TestCase):
    def test_an_order_is_placed_and_shown_as_waiting(self) -> None:
        response = self.client.post(reverse("index"), FILLED_IN, follow=True)
        self.assertRedirects(response, reverse("index"))
        self.assertContains(response, "is placed.")
        self.assertContains(response, '<td class="waiting">waiting</td>', html=True)

    def test_an_order_whose_message_left_the_outbox_is_shown_as_published(self) -> None:
        place()
        OutboxRecord.objects.all().delete()
        response = self.client.get(reverse("index"))
        self.assertContains(response, '<td class="published">published</td>', html=True)

    def test_an_order_whose_message_was_set_aside_is_shown_as_parked(self) -> None:
        order = place()
        OutboxRecord.objects.all().delete()
        ParkedRecord.objects.create(id=1, message_id=str(order.message_id))
        response = self.client.get(reverse("index"))
        self.assertContains(response, '<td class="parked">parked</td>', html=True)

    def test_what_customers_write_is_escaped(self) -> None:
        place(customer="<script>alert(1)</script>")
        response = self.client.get(reverse("index"))
        self.assertNotContains(response, "<script>")
        self.assertContains(response, "&lt;script&gt;")

    def test_a_wrong_form_is_shown_again_and_places_nothing(self) -> None:
        wrong = FILLED_IN | {"sku": "TEA 100", "quantity": "0"}
        response = self.client.post(reverse("index"), wrong)
        self.assertContains(
            response, "Use letters, digits and hyphens.", status_code=400
        )
        self.assertContains(response, 'aria-invalid="true"', count=2, status_code=400)
        self.assertEqual(Order.objects.count(), 0)

    def test_an_order_is_paid_with_its_button(self) -> None:
        order = place()
        response = self.client.post(reverse("change", args=[order.pk, "paid"]))
        self.assertRedirects(response, reverse("index"))
        order.refresh_from_db()
        self.assertEqual(order.status, Status.PAID)

    def test_a_refused_change_says_why(self) -> None:
        order = orders.change(place().pk, Status.CANCELLED)
        address = reverse("change", args=[order.pk, "paid"])
        response = self.client.post(address, follow=True)
        self.assertContains(response, "is cancelled already.")

    def test_there_is_no_change_to_what_does_not_exist(self) -> None:
        for order_id, status in ((place().pk, "eaten"), (10**30, "paid")):
            response = self.client.post(reverse("change", args=[order_id, status]))
            self.assertEqual(response.status_code, 404)

    def test_another_site_cannot_place_an_order(self) -> None:
        browser = Client(enforce_csrf_checks=True)
        response = browser.post(reverse("index"), FILLED_IN)
        self.assertEqual(response.status_code, 403)


class ApiTest(TestCase):
    def post(self, body: str) -> tuple[int, Any]:
        client = Client(enforce_csrf_checks=True)
        address = reverse("api-orders")
        response = client.post(address, body, content_type="application/json")
        return response.status_code, response.json()

    def test_an_order_is_placed_and_its_ids_are_told(self) -> None:
        status, ids = self.post(json.dumps(FILLED_IN | {"amount": 7.5}))
        order = Order.objects.get()
        self.assertEqual(status, 201)
        self.assertEqual(
            ids, {"order_id": order.pk, "message_id": str(order.message_id)}
        )

    def test_what_is_wrong_is_told_by_field(self) -> None:
        wrong = FILLED_IN | {"customer": "\ud800", "quantity": True, "amount": {}}
        for body, fields in (
            (json.dumps(wrong), {"amount"}),
            (json.dumps(wrong | {"amount": None}), {"customer", "quantity", "amount"}),
            ("{}", {"customer", "sku", "quantity", "amount"}),
            ("[]", {"body"}),
            ("{", {"body"}),
            ("[" * 100_000, {"body"}),
        ):
            with self.subTest(body=body[:40]):
                status, answer = self.post(body)
                self.assertEqual(status, 400)
                self.assertEqual(set(answer["errors"]), fields)
        self.assertEqual(Order.objects.count(), 0)

    def test_orders_are_listed_with_their_delivery(self) -> None:
        order = place()
        (listed,) = self.client.get(reverse("api-orders")).json()["orders"]
        self.assertEqual(listed["order_id"], order.pk)
        self.assertEqual(listed["delivery"], "waiting")
