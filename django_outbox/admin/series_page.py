"""The page of series: to view, to release, to discard."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import admin, messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..exceptions import SeriesError
from ..models import Series, SeriesQuerySet
from ..stashing.series import discard_series, release_series
from .bounded_pages import ViewAdmin, alias_of_outbox, chosen_rows
from .record_actions import ask


@admin.register(Series)
class SeriesAdmin(ViewAdmin):
    """Series, open and closed. Each is closed as a whole."""

    list_display = ("name", "state", "staged", "expected", "created_at", "expires_at")
    list_filter = ("state",)
    search_fields = ("=name",)
    fields = (*list_display, "on_timeout", "closed_at")
    actions = ("release", "discard")

    def has_release_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("django_outbox.release_series")

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("django_outbox.discard_series")

    @admin.action(description=_("Release selected series"), permissions=["release"])
    def release(self, request: HttpRequest, queryset: SeriesQuerySet) -> None:
        """Move their messages into the outbox."""
        self._close(request, queryset, release_series, gettext("Released"))

    @admin.action(
        description=_("Discard selected series with their messages"),
        permissions=["discard"],
    )
    def discard(
        self, request: HttpRequest, queryset: SeriesQuerySet
    ) -> HttpResponse | None:
        """Ask, then delete their messages unsent."""
        if request.POST.get("confirmed") != "yes":
            title = gettext("Discard series for good?")
            template = "confirm_discard.html"
            return ask(self, request, queryset, title=title, template=template)
        self._close(request, queryset, discard_series, gettext("Discarded"))
        return None

    def _close(
        self,
        request: HttpRequest,
        queryset: SeriesQuerySet,
        close: Callable[..., object],
        note: str,
    ) -> None:
        """Close each series in a transaction of its own, and log who did it."""
        alias = alias_of_outbox()
        for series in chosen_rows(self, request, queryset) or ():
            try:
                with transaction.atomic(using=alias):
                    close(series.name, using=alias)
            except SeriesError as exc:
                self.message_user(request, str(exc), messages.WARNING)
                continue
            self.log_change(request, series, note)
            self.message_user(request, f"{note}: {series}", messages.SUCCESS)
