"""
What a person may do to records in the admin, each with a permission of its own.

Every action calls the function that the verb of `manage.py outbox` calls, and leaves a
note in the admin log for each record that it has changed. Dropping asks first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from ..operations import by_hand
from .bounded_pages import ViewAdmin, alias_of_outbox, answer, chosen_rows

MAX_DROPPED: Final = 900
"""Records that one answer drops: each is a field of the form that asks, and Django
takes forms of a thousand fields."""


@admin.action(
    description=_("Park selected blocked records"),
    permissions=["park"],
)
def park(page: ViewAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> None:
    """Move blocked records to the parked table."""
    carry_out(page, request, queryset, by_hand.park, done=gettext("Parked"))


@admin.action(
    description=_("Put selected records back into the outbox"), permissions=["release"]
)
def release(page: ViewAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> None:
    """Put parked records back."""
    carry_out(
        page,
        request,
        queryset,
        by_hand.release,
        done=gettext("Put back into the outbox"),
    )


@admin.action(
    description=_("Drop selected blocked records"),
    permissions=["skip"],
)
def skip(
    page: ViewAdmin, request: HttpRequest, queryset: QuerySet[Any]
) -> HttpResponse | None:
    """Ask, then drop blocked records."""
    return _drop(page, request, queryset, by_hand.skip)


@admin.action(
    description=_("Drop selected records"),
    permissions=["skip"],
)
def skip_parked(
    page: ViewAdmin, request: HttpRequest, queryset: QuerySet[Any]
) -> HttpResponse | None:
    """Ask, then drop parked records."""
    return _drop(page, request, queryset, by_hand.skip_parked)


def _drop(
    page: ViewAdmin,
    request: HttpRequest,
    queryset: QuerySet[Any],
    act: Callable[[str, Collection[int]], by_hand.Outcome],
) -> HttpResponse | None:
    if request.POST.get("confirmed") == "yes":
        done = gettext("Dropped")
        carry_out(page, request, queryset, act, done=done, flag=DELETION)
        return None
    title = gettext("Drop records for good?")
    return ask(page, request, queryset, title=title, template="confirm_skip.html")


def ask(
    page: ViewAdmin,
    request: HttpRequest,
    queryset: QuerySet[Any],
    *,
    title: str,
    template: str,
) -> HttpResponse | None:
    """Return the page that asks for a yes; None, and say so, if these are too many."""
    rows = chosen_rows(page, request, queryset, most=MAX_DROPPED)
    if rows is None:
        return None
    return answer(
        page.admin_site,
        request,
        template,
        title=title,
        opts=page.opts,
        records=rows,
        action=request.POST["action"],
        checkbox=ACTION_CHECKBOX_NAME,
        media=page.media,
    )


def carry_out(
    page: ViewAdmin,
    request: HttpRequest,
    queryset: QuerySet[Any],
    act: Callable[[str, Collection[int]], by_hand.Outcome],
    *,
    done: str,
    flag: int = CHANGE,
) -> None:
    """Do it to the chosen records; say and log what was done, and by whom."""
    chosen = chosen_rows(page, request, queryset)
    if chosen is None:
        return
    alias, pks = alias_of_outbox(), [record.pk for record in chosen]
    # Not in the database of the list: routers may read from a replica, which lags.
    rows = page.model._default_manager.using(alias)
    before = by_hand.still_there(rows, pks)
    outcome = act(alias, pks)
    changed = before - by_hand.still_there(rows, pks)
    note(request, [record for record in chosen if record.pk in changed], flag, done)
    text = ngettext(
        "%(what)s: %(done)d of %(chosen)d record.",
        "%(what)s: %(done)d of %(chosen)d records.",
        outcome.wanted,
    ) % {"what": done, "done": outcome.done, "chosen": outcome.wanted}
    if outcome.left:
        text += " " + gettext("The others are not as they were on the page.")
    page.message_user(
        request, text, messages.WARNING if outcome.left else messages.SUCCESS
    )


def note(request: HttpRequest, records: list[Any], flag: int, done: str) -> None:
    """Leave a note in the admin log for each of these records."""
    if records:
        LogEntry.objects.log_actions(str(request.user.pk), records, flag, done)
