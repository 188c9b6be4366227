"""
What all pages of the outbox share: they change nothing, and cost a bounded amount.

A list never counts or sorts a whole table, since a queue may have millions of rows. The
choices of a filter come from the oldest rows. A search compares ids, topics and, for
those who may see them, keys; it never looks into a payload.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.utils import flatten_fieldsets
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..conf import settings
from ..message.record import HIGHEST_ID
from ..models.routing import outbox_database
from ..wording import number_in

COUNT_CAP: Final = 10_000
"""Most rows that a list counts, and among which a filter looks for its choices."""
MAX_CHOICES: Final = 50
"""Most choices of a filter."""
PREVIEW_LENGTH: Final = 2_000
"""Most characters of a value that a page shows."""

if TYPE_CHECKING:
    _ModelAdmin: TypeAlias = admin.ModelAdmin[Any]
    _Paginator: TypeAlias = Paginator[Any]
else:
    # Django's own classes take no type arguments at run time.
    _ModelAdmin, _Paginator = admin.ModelAdmin, Paginator


def alias_of_outbox() -> str:
    """Return the database of the outbox that these pages show."""
    return outbox_database(settings.DATABASE)


def answer(
    site: admin.AdminSite, request: HttpRequest, template: str, **context: Any
) -> HttpResponse:
    """Return a page of our own, whose header and links are those of its site."""
    request.current_app = site.name
    name = apps.get_app_config("django_outbox").verbose_name
    return TemplateResponse(
        request,
        f"admin/django_outbox/{template}",
        {**site.each_context(request), "app_name": name, **context},
    )


class CappedPaginator(_Paginator):
    """A paginator that never counts the whole table."""

    @cached_property
    def count(self) -> int:
        rows: QuerySet[Model] = self.object_list  # type: ignore[assignment]
        return rows.order_by()[:COUNT_CAP].count()


class UnsortedList(ChangeList):
    """A list in the order of its page, which has an index, whatever is asked for."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        self.params.pop(ORDER_VAR, None)
        return super().get_ordering(request, queryset)


class TopicFilter(admin.SimpleListFilter):
    """Topics of the oldest rows; another one can be searched for."""

    title = _("topic")
    parameter_name = "topic"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        rows = model_admin.get_queryset(request).order_by("pk")[:COUNT_CAP]
        oldest = model_admin.model._default_manager.using(rows.db).filter(
            pk__in=rows.values("pk")
        )
        topics = oldest.order_by("kafka_topic").values_list("kafka_topic", flat=True)
        return [(topic, topic) for topic in topics.distinct()[:MAX_CHOICES]]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> QuerySet[Any] | None:
        return queryset.filter(kafka_topic=self.value()) if self.value() else None


class ViewAdmin(_ModelAdmin):
    """A page without adding, changing and deleting."""

    paginator = CappedPaginator
    show_full_result_count = False
    # Counts beside the choices of a filter would read the whole table.
    show_facets = admin.ShowFacets.NEVER
    ordering = ("id",)
    sortable_by = ()
    list_per_page = 50

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[ChangeList]:
        return UnsortedList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.using(settings.DATABASE) if settings.DATABASE else rows

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # Deleting a row would lose a message without a question that says so.
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


class MessageAdmin(ViewAdmin):
    """The common part of the pages of messages."""

    facts: ClassVar[tuple[str, ...]] = ()
    """Shown to all users of the page."""
    payload: ClassVar = ("kafka_key", "headers", "value")
    """Shown only with the permission view_payload."""
    ids: ClassVar[tuple[str, ...]] = ("id",)
    """Columns that a search for a number compares."""
    own_filters: ClassVar[tuple[str, ...]] = ("topic",)
    """Parameters of filters that are no columns."""
    # The comparisons are in get_search_results(); without this there is no field.
    search_fields = ("kafka_topic",)
    search_help_text = _("An exact id, message id or topic; where keys show, or a key.")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Leave values in the database, where a list or an action needs none."""
        return super().get_queryset(request).defer("kafka_value", "kafka_value_bytes")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.get_readonly_fields(request, obj)

    def get_readonly_fields(
        self, request: HttpRequest, obj: Any = None
    ) -> tuple[str, ...]:
        if may_see_payload(request):
            return (*self.facts, *self.payload)
        return self.facts

    def get_filterable(self, request: HttpRequest) -> set[str]:
        """Return the columns that a URL may filter by; with view_payload, all."""
        if may_see_payload(request):
            shown = {field.name for field in self.opts.get_fields()}
        else:
            shown = set(self.facts)
        return {"pk", *self.own_filters, *shown}

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find by id, message id or topic; with view_payload also by key."""
        term = search_term.strip()
        if not term:
            return queryset, False
        condition = Q()
        for column, value in self._comparisons(term, by_key=may_see_payload(request)):
            condition |= Q((column, value))
        return queryset.filter(condition), False

    def _comparisons(self, term: str, *, by_key: bool) -> Iterator[tuple[str, Any]]:
        if (number := id_in(term)) is not None:
            yield from ((column, number) for column in self.ids)
        try:
            yield "message_id", uuid.UUID(term)
        except ValueError:
            yield "kafka_topic", term
        if by_key:
            yield "kafka_key", term

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


def chosen_rows(
    page: ViewAdmin, request: HttpRequest, queryset: QuerySet[Any], *, most: int = 0
) -> list[Any] | None:
    """
    Return the rows that an action is for; None, and say so, if these are too many.

    "Select all" is offered of as many as the list counts, and means all there are.

    Args:
        most: By default, as many as a list counts.
    """
    most = most or COUNT_CAP
    rows = list(queryset[: most + 1])
    if len(rows) <= most:
        return rows
    text = gettext("Choose at most %d of them.") % most
    page.message_user(request, text, messages.ERROR)
    return None


def id_in(text: str) -> int | None:
    """Return the id that a text is; None: no row has such an id."""
    number = number_in(text, 19)
    return None if number is None or number > HIGHEST_ID else number


def may_see_payload(request: HttpRequest) -> bool:
    """Whether this user may see keys, values and headers."""
    return request.user.has_perm("django_outbox.view_payload")
