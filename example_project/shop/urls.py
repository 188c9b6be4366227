"""The shop's URLs."""

from __future__ import annotations

from django.urls import path

from .api import OrdersView
from .views import change, index

urlpatterns = [
    path("", index, name="index"),
    path("orders/<int:order_id>/<str:status>/", change, name="change"),
    path("api/orders/", OrdersView.as_view(), name="api-orders"),
]
