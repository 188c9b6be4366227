"""
The live page: a page that asks a view for a reading every other second.

The view costs the database little, and readings are shared by everybody who looks at
the page in this process at the same time. No payload is part of it; shares of keys
only for those who may see keys.
"""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext

from ..models import OutboxRecord
from ..operations.live_reading import MAX_EVENTS, latest, read
from .bounded_pages import alias_of_outbox, may_see_payload

if TYPE_CHECKING:
    from ..operations.leader import BackgroundWatch

SHARED_FOR: Final = 1.0
"""Seconds for which a reading is given to others."""

_lock = threading.Lock()
_readings: dict[tuple[str, bool], tuple[float, dict[str, Any]]] = {}


def may_see(request: HttpRequest) -> bool:
    """Whether this user may see the live page."""
    return request.user.has_perm("django_outbox.view_live")


def page(request: HttpRequest) -> HttpResponse:
    """Show the page, which is empty until its first reading."""
    if not may_see(request):
        raise PermissionDenied
    context = {
        **admin.site.each_context(request),
        "title": gettext("Outbox, live"),
        "app_name": OutboxRecord._meta.app_config.verbose_name,
    }
    return TemplateResponse(request, "admin/django_outbox/live.html", context)


def data(request: HttpRequest) -> JsonResponse:
    """Return a reading."""
    if not may_see(request):
        raise PermissionDenied
    alias = alias_of_outbox()
    reading = _reading(alias, with_keys=may_see_payload(request))
    return JsonResponse(
        reading
        | {
            "leader": _watch(alias).state(),
            "events": latest([*reading["events"], *_notes()]),
        }
    )


@cache
def _watch(alias: str) -> BackgroundWatch:
    # Import late: other pages do not load the Kafka client.
    from ..operations.leader import BackgroundWatch

    return BackgroundWatch(alias)


def _reading(alias: str, *, with_keys: bool) -> dict[str, Any]:
    """Return a reading that is at most a second old."""
    with _lock:
        read_at, reading = _readings.get((alias, with_keys), (0.0, {}))
        if not reading or time.monotonic() - read_at > SHARED_FOR:
            reading = read(alias, with_keys=with_keys)
            _readings[alias, with_keys] = (time.monotonic(), reading)
        return reading


def _notes() -> list[dict[str, Any]]:
    """Return what people did in the admin, as events."""
    entries = LogEntry.objects.filter(content_type__app_label="django_outbox")
    return [
        {
            "time": entry.action_time.isoformat(),
            "kind": "admin",
            "text": f"{entry.user}: {entry.object_repr}: {entry.get_change_message()}",
        }
        for entry in entries.select_related("user").order_by("-action_time")[
            :MAX_EVENTS
        ]
    ]
