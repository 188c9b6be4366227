"""The order form, shared by the page and the API."""

from __future__ import annotations

from django import forms

from . import orders
from .models import Order


class OrderForm(forms.ModelForm):  # type: ignore[type-arg]
    """A new order."""

    class Meta:
        model = Order
        fields = ("customer", "sku", "quantity", "amount")

    def place(self) -> Order:
        """Place the order; only when the form is valid."""
        return orders.place(**self.cleaned_data)
