"""The page that sends archived records again: first it shows which, then it sends."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from ..conf import settings
from ..models import ArchivedRecord
from ..operations.replaying import MAX_REPLAYED, Selection, matches, replay
from .bounded_pages import alias_of_outbox, answer

MAX_SHOWN: Final = 100
"""Records that the page lists."""
_FORMAT: Final = "%Y-%m-%dT%H:%M:%S"


def may_replay(request: HttpRequest) -> bool:
    """Whether this user may send archived records again."""
    return request.user.has_perm("django_outbox.replay_archivedrecord")


class _Moment(forms.DateTimeInput):
    input_type = "datetime-local"

    def __init__(self) -> None:
        super().__init__(format=_FORMAT, attrs={"step": "1"})


class SelectionForm(forms.Form):
    """Which records to send again."""

    since = forms.DateTimeField(label=_("Sent since"), widget=_Moment())
    until = forms.DateTimeField(label=_("and before"), widget=_Moment())
    topic = forms.CharField(label=_("Topic"), required=False, max_length=249)
    id = forms.IntegerField(label=_("Id of the record"), required=False)

    def clean(self) -> dict[str, Any]:
        """Refuse a period that ends before it begins."""
        values = super().clean() or {}
        since, until = values.get("since"), values.get("until")
        if since and until and since >= until:
            raise forms.ValidationError(_("The period ends before it begins."))
        return values

    @property
    def selection(self) -> Selection:
        """What was chosen, once the form is valid."""
        return Selection(**self.cleaned_data)


def page(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    """Show which records match; send them again when that was confirmed."""
    if not may_replay(request):
        raise PermissionDenied
    alias = alias_of_outbox()
    if request.method == "POST":
        form = SelectionForm(request.POST)
        if form.is_valid():
            _replay(request, alias, form.selection)
            again = reverse("admin:django_outbox_replay", current_app=site.name)
            return HttpResponseRedirect(again)
    elif "since" in request.GET:
        form = SelectionForm(request.GET)
    else:
        form = SelectionForm(initial=_last_hour())
    found, is_more = None, False
    if form.is_bound and form.is_valid():
        found, is_more = matches(alias, form.selection)
    return answer(
        site,
        request,
        "replay.html",
        title=gettext("Send archived records again"),
        form=form,
        found=found,
        shown=(found or [])[:MAX_SHOWN],
        is_more=is_more,
        limit=MAX_REPLAYED,
        has_archive=settings.ARCHIVE,
    )


def _last_hour() -> dict[str, datetime]:
    now = timezone.now()
    return {"since": now - timedelta(hours=1), "until": now}


def _replay(request: HttpRequest, alias: str, selection: Selection) -> None:
    """Send the records again; say and log which, and who did it."""
    sent = replay(alias, selection)
    kind = ContentType.objects.get_for_model(ArchivedRecord)
    LogEntry.objects.bulk_create(
        LogEntry(
            user_id=str(request.user.pk),
            content_type=kind,
            object_id=str(row["id"]),
            object_repr=f"{row['id']} → {row['kafka_topic']}"[:200],
            action_flag=ADDITION,
            change_message=gettext("Sent again"),
        )
        for row in sent
    )
    text = ngettext(
        "%d record is in the outbox again.",
        "%d records are in the outbox again.",
        len(sent),
    )
    messages.success(request, text % len(sent))
