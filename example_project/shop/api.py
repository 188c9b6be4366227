"""
The shop's JSON API.

    POST /api/orders/  {"customer": …, "sku": …, "quantity": …, "amount": …}
    GET  /api/orders/

The API uses no session cookie, so forged requests gain nothing and it needs no
CSRF token. Add your own authentication.
"""

from __future__ import annotations

import json

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from .delivery import TrackedOrder, track
from .forms import OrderForm
from .models import Order

LISTED = 100
"""Maximum number of orders in a response."""


@method_decorator(csrf_exempt, name="dispatch")
class OrdersView(View):
    """All orders, as a resource."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """List the last orders."""
        tracked = track(Order.objects.all()[:LISTED])
        return JsonResponse({"orders": [_as_json(one) for one in tracked]})

    def post(self, request: HttpRequest) -> HttpResponse:
        """Place an order: 201 with its ids, or 400 with the errors."""
        try:
            values = json.loads(request.body)
        except (ValueError, RecursionError):
            return _refuse({"body": ["The body must be JSON."]})
        if not isinstance(values, dict):
            return _refuse({"body": ["The body must be a JSON object."]})
        names = OrderForm.base_fields
        nested = [name for name in names if isinstance(values.get(name), dict | list)]
        if nested:
            return _refuse({name: ["Enter one value."] for name in nested})
        form = OrderForm(values)
        if not form.is_valid():
            errors = form.errors.items()
            return _refuse(
                {name: [str(text) for text in texts] for name, texts in errors}
            )
        order = form.place()
        ids = {"order_id": order.pk, "message_id": str(order.message_id)}
        return JsonResponse(ids, status=201)


def _refuse(errors: dict[str, list[str]]) -> HttpResponse:
    return JsonResponse({"errors": errors}, status=400)


def _as_json(tracked: TrackedOrder) -> dict[str, object]:
    order, delivery = tracked
    return {
        "order_id": order.pk,
        "customer": order.customer,
        "sku": order.sku,
        "quantity": order.quantity,
        "amount": order.amount,
        "status": order.status,
        "created_at": order.created_at,
        "message_id": order.message_id,
        "delivery": delivery.value,
    }
