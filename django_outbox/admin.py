"""
Admin pages of waiting, staged and parked messages, and of series.

Parked records can be put back, series can be released or discarded. Messages cannot
be added or changed. Only users with the permission `django_outbox.view_payload` see
keys, values and headers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import flatten_fieldsets
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import Model, QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from .conf import settings
from .exceptions import SeriesError
from .models import (
    OutboxRecord,
    ParkedQuerySet,
    ParkedRecord,
    Series,
    SeriesQuerySet,
    StagedRecord,
)
from .models.routing import outbox_database
from .stashing.series import discard_series, release_series

COUNT_CAP: Final = 10_000
"""Most rows that the list counts: a queue may have millions."""
PREVIEW_LENGTH: Final = 2_000
"""Most characters of a value that a page shows."""


if TYPE_CHECKING:
    _ModelAdmin: TypeAlias = admin.ModelAdmin[Any]
    _Paginator: TypeAlias = Paginator[Any]
else:
    # Django's own classes take no type arguments at run time.
    _ModelAdmin, _Paginator = admin.ModelAdmin, Paginator


class CappedPaginator(_Paginator):
    """A paginator that never counts the whole table."""

    @cached_property
    def count(self) -> int:
        rows: QuerySet[Model] = self.object_list  # type: ignore[assignment]
        return rows.order_by()[:COUNT_CAP].count()


class _ViewAdmin(_ModelAdmin):
    """A page without adding and changing."""

    paginator = CappedPaginator
    show_full_result_count = False
    ordering = ("id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.using(settings.DATABASE) if settings.DATABASE else rows

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def lookup_allowed(
        self, lookup: str, value: Any, request: HttpRequest | None = None
    ) -> bool:
        """Refuse filters on hidden columns: their answers would reveal the values."""
        column = lookup.split(LOOKUP_SEP, 1)[0]
        if request is None or column not in self.get_filterable(request):
            return False
        return super().lookup_allowed(lookup, value, request)

    def get_filterable(self, request: HttpRequest) -> set[str]:
        """Return the columns that a URL may filter by."""
        return {"pk", *flatten_fieldsets(self.get_fieldsets(request))}


class _RecordAdmin(_ViewAdmin):
    """The common part of the pages of messages."""

    facts: ClassVar[tuple[str, ...]] = ()
    """Shown to all users of the page."""
    payload: ClassVar = ("kafka_key", "headers", "value")
    """Shown only with the permission view_payload."""

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.get_readonly_fields(request, obj)

    def get_readonly_fields(
        self, request: HttpRequest, obj: Any = None
    ) -> tuple[str, ...]:
        if request.user.has_perm("django_outbox.view_payload"):
            return (*self.facts, *self.payload)
        return self.facts

    def get_filterable(self, request: HttpRequest) -> set[str]:
        """Return the columns that a URL may filter by; with view_payload, all."""
        if request.user.has_perm("django_outbox.view_payload"):
            return {"pk", *(field.name for field in self.opts.get_fields())}
        return {"pk", *self.facts}

    @admin.display(description=_("headers"))
    def headers(self, obj: Any) -> str:
        pairs = zip(obj.kafka_header_keys, obj.kafka_header_values, strict=False)
        return "\n".join(f"{name}: {value}" for name, value in pairs)

    @admin.display(description=_("value"))
    def value(self, obj: Any) -> str:
        if obj.kafka_value_bytes is not None:
            return bytes(obj.kafka_value_bytes[: PREVIEW_LENGTH // 2]).hex(" ")
        if obj.kafka_value is None:
            return gettext("(tombstone)")
        return str(obj.kafka_value[:PREVIEW_LENGTH])


@admin.register(OutboxRecord)
class OutboxRecordAdmin(_RecordAdmin):
    """Waiting messages, read-only."""

    list_display = ("id", "create_time", "kafka_topic", "attempts", "leader_id")
    facts = (
        *("id", "message_id", "create_time", "kafka_topic", "kafka_partition"),
        *("cluster_id", "leader_id", "attempts", "last_error"),
    )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # Deleting a row would lose a message.
        return False


@admin.register(ParkedRecord)
class ParkedRecordAdmin(_RecordAdmin):
    """Parked messages: to view, to put back, to delete."""

    # `manage.py outbox status` and the URL use parked_id, too.
    list_display = (
        *("parked_id", "id", "parked_at", "kafka_topic", "attempts", "last_error"),
    )
    ordering = ("parked_id",)
    facts = (
        *("parked_id", "id", "message_id", "create_time", "kafka_topic"),
        *("kafka_partition", "cluster_id", "parked_at", "attempts", "last_error"),
    )
    actions = ("release",)

    def has_release_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("django_outbox.release_parkedrecord")

    @admin.action(
        description=_("Put selected records back into the outbox"),
        permissions=["release"],
    )
    def release(self, request: HttpRequest, queryset: ParkedQuerySet) -> None:
        """Put the records back, and log who did it."""
        chosen = list(queryset)
        released = queryset.release()
        LogEntry.objects.log_actions(
            str(request.user.pk), chosen, CHANGE, gettext("Put back into the outbox.")
        )
        self.message_user(
            request,
            ngettext(
                "%(released)d of %(chosen)d record is back in the outbox.",
                "%(released)d of %(chosen)d records are back in the outbox.",
                len(chosen),
            )
            % {"released": released, "chosen": len(chosen)},
            messages.SUCCESS if released == len(chosen) else messages.WARNING,
        )


@admin.register(StagedRecord)
class StagedRecordAdmin(_RecordAdmin):
    """Staged messages, read-only."""

    list_display = ("staged_id", "create_time", "kafka_topic", "series", "not_before")
    list_select_related = ("series",)
    ordering = ("staged_id",)
    facts = (
        *("staged_id", "message_id", "create_time", "series", "not_before"),
        *("kafka_topic", "kafka_partition", "cluster_id"),
    )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # A series is discarded as a whole.
        return False


@admin.register(Series)
class SeriesAdmin(_ViewAdmin):
    """Series, open and closed: to view, to release, to discard."""

    list_display = ("name", "state", "staged", "expected", "created_at", "expires_at")
    list_filter = ("state",)
    search_fields = ("=name",)
    fields = (*list_display, "on_timeout", "closed_at")
    actions = ("release", "discard")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

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
    def discard(self, request: HttpRequest, queryset: SeriesQuerySet) -> None:
        """Delete their messages unsent."""
        self._close(request, queryset, discard_series, gettext("Discarded"))

    def _close(
        self,
        request: HttpRequest,
        queryset: SeriesQuerySet,
        close: Callable[..., object],
        note: str,
    ) -> None:
        """Close each series in a transaction of its own, and log who did it."""
        alias = outbox_database(settings.DATABASE)
        for series in queryset:
            try:
                with transaction.atomic(using=alias):
                    close(series.name, using=alias)
            except SeriesError as exc:
                self.message_user(request, str(exc), messages.WARNING)
                continue
            self.log_change(request, series, note)
            self.message_user(request, f"{note}: {series}", messages.SUCCESS)
