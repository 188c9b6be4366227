"""The shop's HTML page."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from . import orders
from .delivery import track
from .forms import OrderForm
from .models import Order, Status

SHOWN = 20
"""Maximum number of orders on the page."""


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """Show the form and the last orders; place one on POST."""
    form = OrderForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        order = form.place()
        messages.success(request, f"Order {order.pk} is placed.")
        return redirect("index")
    context = {"form": form, "tracked": track(Order.objects.all()[:SHOWN])}
    status = 400 if form.errors else 200
    return render(request, "shop/index.html", context, status=status)


@require_POST
def change(request: HttpRequest, order_id: int, status: str) -> HttpResponse:
    """Pay or cancel an order."""
    try:
        order = orders.change(order_id, Status(status))
    except (Order.DoesNotExist, ValueError):
        raise Http404 from None
    except orders.IllegalChange as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, f"Order {order.pk} is {order.status}.")
    return redirect("index")
