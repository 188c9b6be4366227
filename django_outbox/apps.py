"""The Django app."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class DjangoOutboxConfig(AppConfig):
    """`django_outbox` in INSTALLED_APPS."""

    name = "django_outbox"
    label = "django_outbox"
    verbose_name = _("Outbox")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Defer the imports: they need the models, which exist only now.
        from . import checks
        from .operations import archiving, pruning

        checks.register_all()
        archiving.connect()
        pruning.connect()
