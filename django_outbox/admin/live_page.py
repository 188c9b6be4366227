"""
The live page: a page that asks a view for a reading every other second.

The view costs the database little, and readings are shared by everybody who looks at
the page in this process at the same time. No payload is part of it; shares of keys
only for those who may see keys.

The view answers within seconds, also when a table is locked or the database is slow:
one thread of this process waits for the database, and others wait a second for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, Final

from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError, connections, router, transaction
from django.db.models import Max
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext

from ..operations.live_reading import MAX_EVENTS, latest, read
from ..wording import first_line, rfc_3339
from .bounded_pages import alias_of_outbox, answer, may_see_payload

if TYPE_CHECKING:
    from ..operations.leader import BackgroundWatch

logger = logging.getLogger(__name__)

SHARED_FOR: Final = 1.0
"""Seconds for which a reading is given to others."""
RETRY_AFTER: Final = 5.0
"""Seconds after a failed reading in which nobody tries again."""
READING_TIMEOUT: Final = 1.0
"""Seconds for which a viewer waits for the reading of another one."""
OLDEST_SHOWN: Final = 10.0
"""Age in seconds of a reading that is still shown while the next one takes long."""
LONGEST_READING: Final = 4.0
"""Seconds after which a reading begins no further statement."""
MAX_NOTES: Final = 10_000
"""Newest ids of the admin log among which entries about the outbox are looked for."""

_LIMITS: Final = """\
-- outbox: limits
SELECT
    set_config('lock_timeout', '1s', true), set_config('statement_timeout', '4s', true)
"""
"""For the transaction of a reading."""

_lock = threading.Lock()
"""One reading at a time."""
_readings: dict[tuple[str, bool], tuple[float, dict[str, Any] | None]] = {}
"""When each reading ended, and what it found; None: the database did not answer."""


def may_see(request: HttpRequest) -> bool:
    """Whether this user may see the live page."""
    return request.user.has_perm("django_outbox.view_live")


def page(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    """Show the page, which is empty until its first reading."""
    if not may_see(request):
        raise PermissionDenied
    return answer(
        site,
        request,
        "live.html",
        title=gettext("Outbox, live"),
    )


def data(request: HttpRequest) -> JsonResponse:
    """Return a reading, or status 503 and why there is none."""
    if not may_see(request):
        raise PermissionDenied
    reading = _reading(alias_of_outbox(), with_keys=may_see_payload(request))
    if reading is None:
        error = gettext("The database does not answer in time.")
        return JsonResponse({"error": error}, status=503)
    return JsonResponse(reading)


@cache
def _watch(alias: str) -> BackgroundWatch:
    # Import late: other pages do not load the Kafka client.
    from ..operations.leader import BackgroundWatch

    return BackgroundWatch(alias)


def _reading(alias: str, *, with_keys: bool) -> dict[str, Any] | None:
    """
    Return a reading that is at most a second old; None: the database does not answer.

    It may be older while another thread waits for the database.
    """
    key = (alias, with_keys)
    if not _lock.acquire(timeout=READING_TIMEOUT):
        read_at, reading = _readings.get(key, (-inf, None))
        return reading if time.monotonic() - read_at <= OLDEST_SHOWN else None
    try:
        read_at, reading = _readings.get(key, (-inf, None))
        lifetime = RETRY_AFTER if reading is None else SHARED_FOR
        if time.monotonic() - read_at > lifetime:
            reading = _read(alias, with_keys=with_keys)
            _readings[key] = (time.monotonic(), reading)
        return reading
    finally:
        _lock.release()


def _read(alias: str, *, with_keys: bool) -> dict[str, Any] | None:
    """Ask the database; None: it does not answer in time."""
    ends_at = time.monotonic() + LONGEST_READING
    log = router.db_for_read(LogEntry)
    try:
        with _limited(alias, ends_at):
            reading = read(alias, with_keys=with_keys)
            # At its start, the watch asks the database which outbox this is.
            reading["leader"] = _watch(alias).state()
        with _limited(log, ends_at):
            reading["events"] = latest([*reading["events"], *_notes(log)])
    except (InterfaceError, OperationalError) as error:
        reason = first_line(error)
        logger.warning("No reading for the live page: %s", reason)
        return None
    return reading


@contextmanager
def _limited(alias: str, ends_at: float) -> Iterator[None]:
    """
    Run a transaction that waits for seconds at most, for locks and for answers.

    Args:
        ends_at: no statement begins after this moment of the monotonic clock.

    Raises:
        OperationalError: it has taken too long.
    """

    def in_time(execute: Callable[..., Any], *arguments: Any) -> Any:
        if time.monotonic() > ends_at:
            raise OperationalError(f"It took more than {LONGEST_READING:g} s.")
        return execute(*arguments)

    connection = connections[alias]
    with transaction.atomic(using=alias), connection.execute_wrapper(in_time):
        # The log of the admin may be in a database of another kind.
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(_LIMITS)
        yield


def _notes(log: str) -> list[dict[str, Any]]:
    """Return what people did in the admin lately, as events."""
    entries = LogEntry.objects.using(log)
    # The log has no index of its times, and may be of any length.
    newest = entries.aggregate(newest=Max("pk"))["newest"] or 0
    found = entries.filter(
        pk__gt=newest - MAX_NOTES, content_type__app_label="django_outbox"
    )
    return [
        {
            "time": rfc_3339(entry.action_time),
            "kind": "admin",
            "text": f"{entry.user}: {entry.object_repr}: {entry.get_change_message()}",
        }
        for entry in found.select_related("user").order_by("-pk")[:MAX_EVENTS]
    ]
