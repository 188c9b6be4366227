"""Follows the records of an outbox as they are written."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any, Final

from ..conf import settings
from ..models import ArchivedRecord, OutboxRecord
from .live_reading import database_time

COLUMNS: Final = ("id", "message_id", "create_time", "kafka_topic", "kafka_partition")
"""What is shown of a record: no payload."""

PAGE: Final = 1_000
"""Most records of each table that one look returns."""
REMEMBERED: Final = 2_000
"""Ids below the highest one that are remembered: a transaction that commits late makes
an id visible below those that were shown."""

LATE_COMMIT: Final = timedelta(seconds=2)
"""How long a row of the archive may take to become visible."""


class Tail:
    """
    Finds the records that are new since the last look; for one thread.

    With ARCHIVE, also those that were sent between two looks. Without it they are gone
    before anybody can see them.

    Args:
        alias: database of the outbox.
        topic: show only records of this topic; empty: of all.
    """

    def __init__(self, alias: str, *, topic: str = "") -> None:
        self._waiting = OutboxRecord.objects.using(alias)
        self._sent = ArchivedRecord.objects.using(alias)
        if topic:
            self._waiting = self._waiting.filter(kafka_topic=topic)
            self._sent = self._sent.filter(kafka_topic=topic)
        self._alias = alias
        # Of all topics: those of one may be far apart, or all gone.
        ids = OutboxRecord.objects.using(alias).order_by("-id")
        self._latest = ids.values_list("id", flat=True)
        self._seen = set(self._latest[:REMEMBERED])
        self._above = min(self._seen, default=0) - 1
        self._began = database_time(alias)
        self._sent_at = self._began

    def look(self) -> list[dict[str, Any]]:
        """Return the new records in the order of their ids, a bounded number."""
        # Before the page: of what commits in between, it may not have all.
        latest = [*self._latest[REMEMBERED - 1 : REMEMBERED]]
        found = list(
            self._waiting.filter(id__gt=self._above)
            .exclude(id__in=self._seen)
            .order_by("id")
            .values(*COLUMNS)[:PAGE]
        )
        is_behind = len(found) == PAGE
        if settings.ARCHIVE:
            found += self._archived()
        new = {row["id"]: row for row in found if row["id"] not in self._seen}
        self._remember(new)
        if not is_behind:
            # Those of one topic may never be many.
            for number in latest:
                self._above = max(self._above, number - 1)
        return [new[number] for number in sorted(new)]

    def _archived(self) -> list[dict[str, Any]]:
        now = database_time(self._alias)
        rows = list(
            self._sent.filter(archived_at__gte=self._sent_at - LATE_COMMIT)
            .filter(id__gt=self._above, create_time__gte=self._began)
            .exclude(id__in=self._seen)
            .order_by("archived_at", "id")
            .values("archived_at", *COLUMNS)[:PAGE]
        )
        # An infinite time is None.
        times = [at.astimezone(UTC) for row in rows if (at := row.pop("archived_at"))]
        self._sent_at = now if len(rows) < PAGE else max([self._sent_at, *times])
        return rows

    def _remember(self, new: dict[int, dict[str, Any]]) -> None:
        self._seen |= new.keys()
        if len(self._seen) > REMEMBERED:
            kept = sorted(self._seen)[-REMEMBERED:]
            self._seen = set(kept)
            self._above = kept[0] - 1
