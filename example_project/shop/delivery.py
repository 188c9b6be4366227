"""Finds out from the outbox whether Kafka has the newest message of an order."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from django_outbox.models import OutboxRecord, ParkedRecord

from .models import Order


class Delivery(Enum):
    """Where a message is."""

    WAITING = "waiting"
    """In the outbox: not yet acknowledged by Kafka."""
    PARKED = "parked"
    """Parked after repeated failures."""
    PUBLISHED = "published"
    """In Kafka: the harvester deletes a row once it is acknowledged."""


class TrackedOrder(NamedTuple):
    """An order and where its newest message is."""

    order: Order
    delivery: Delivery


def track(orders: Iterable[Order]) -> list[TrackedOrder]:
    """Look up the messages of all orders with two queries."""
    listed = list(orders)
    ids = [order.message_id for order in listed if order.message_id]
    # The outbox first, so that a row parked between the queries shows as parked.
    waiting = OutboxRecord.objects.filter(message_id__in=ids)
    places: dict[UUID | None, Delivery] = {}
    for message_id in waiting.values_list("message_id", flat=True):
        places[message_id] = Delivery.WAITING
    parked = ParkedRecord.objects.filter(message_id__in=ids)
    for message_id in parked.values_list("message_id", flat=True):
        places[message_id] = Delivery.PARKED
    return [
        TrackedOrder(order, places.get(order.message_id, Delivery.PUBLISHED))
        for order in listed
    ]
