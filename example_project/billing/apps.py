"""Billing as a Django app."""

from __future__ import annotations

from django.apps import AppConfig


class BillingConfig(AppConfig):
    """Billing."""

    name = "billing"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the leader task to the signals."""
        # The harvester's process needs the leader tasks, too.
        from . import tasks  # noqa: F401
