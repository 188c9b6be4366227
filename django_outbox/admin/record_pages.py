"""The pages of waiting, blocked, parked and staged records."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _

from ..models import OutboxRecord, ParkedRecord, StagedRecord
from . import live_page, replay_page
from .bounded_pages import MessageAdmin, TopicFilter, id_in
from .record_actions import park, release, skip, skip_parked


class StateFilter(admin.SimpleListFilter):
    """Whether a delivery has failed."""

    title = _("state")
    parameter_name = "state"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, Any]]:
        return [("blocked", _("blocked")), ("untried", _("not tried yet"))]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> QuerySet[Any] | None:
        if self.value() == "blocked":
            return queryset.filter(attempts__gt=0)
        return queryset.filter(attempts=0) if self.value() == "untried" else None


@admin.register(OutboxRecord)
class OutboxRecordAdmin(MessageAdmin):
    """Waiting messages. Those whose delivery has failed can be parked or dropped."""

    list_display = (
        *("id", "kafka_topic", "attempts", "last_error", "create_time", "leader_id"),
    )
    list_filter = (StateFilter, TopicFilter)
    own_filters = ("state", "topic")
    facts = (
        *("id", "message_id", "create_time", "kafka_topic", "kafka_partition"),
        *("cluster_id", "leader_id", "attempts", "last_error"),
    )
    actions = (park, skip)
    change_list_template = "admin/django_outbox/waiting.html"

    def has_park_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("django_outbox.park_outboxrecord")

    def has_skip_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("django_outbox.skip_outboxrecord")

    def get_urls(self) -> list[URLPattern]:
        site, wrap = self.admin_site, self.admin_site.admin_view
        live = partial(live_page.page, site=site)
        replay = partial(replay_page.page, site=site)
        own = [
            path("live/", wrap(live), name="django_outbox_live"),
            path("live/data/", wrap(live_page.data), name="django_outbox_live_data"),
            path("replay/", wrap(replay), name="django_outbox_replay"),
        ]
        return own + super().get_urls()

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        doors = {
            "may_see_live": live_page.may_see(request),
            "may_replay": replay_page.may_replay(request),
        }
        return super().changelist_view(request, doors | (extra_context or {}))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the record with this id, as log lines name it, also if it is parked."""
        if parked := self._parked(request, object_id):
            return HttpResponseRedirect(parked)
        return super().change_view(request, object_id, form_url, extra_context)

    def _parked(self, request: HttpRequest, object_id: str) -> str | None:
        """Return the page of the parked record of this id, if it does not wait."""
        may_see = request.user.has_perm("django_outbox.view_parkedrecord")
        is_id = id_in(object_id) is not None
        if not (may_see and is_id and self.has_view_permission(request)):
            return None
        if self.get_queryset(request).filter(pk=object_id).exists():
            return None
        rows = ParkedRecord.objects.using(self.get_queryset(request).db)
        ids = rows.filter(id=object_id).values_list("parked_id", flat=True)
        found = list(ids[:2])
        if not found:
            return None
        if len(found) == 1:
            return reverse(
                "admin:django_outbox_parkedrecord_change",
                args=found,
                current_app=self.admin_site.name,
            )
        several = reverse(
            "admin:django_outbox_parkedrecord_changelist",
            current_app=self.admin_site.name,
        )
        return f"{several}?id={object_id}"


@admin.register(ParkedRecord)
class ParkedRecordAdmin(MessageAdmin):
    """Parked messages: to view, to put back, to drop."""

    # `manage.py outbox status` and the URL use parked_id, too.
    list_display = (
        *("parked_id", "id", "kafka_topic", "attempts", "last_error", "parked_at"),
    )
    list_filter = (TopicFilter,)
    ordering = ("parked_id",)
    ids = ("parked_id", "id")
    facts = (
        *("parked_id", "id", "message_id", "create_time", "kafka_topic"),
        *("kafka_partition", "cluster_id", "parked_at", "attempts", "last_error"),
    )
    actions = (release, skip_parked)

    def has_release_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("django_outbox.release_parkedrecord")

    def has_skip_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("django_outbox.skip_parkedrecord")


@admin.register(StagedRecord)
class StagedRecordAdmin(MessageAdmin):
    """Staged messages, read-only: a series is discarded as a whole."""

    list_display = ("staged_id", "create_time", "kafka_topic", "series", "not_before")
    list_filter = (TopicFilter,)
    list_select_related = ("series",)
    ordering = ("staged_id",)
    ids = ("staged_id",)
    facts = (
        *("staged_id", "message_id", "create_time", "series", "not_before"),
        *("kafka_topic", "kafka_partition", "cluster_id"),
    )
