"""
One reading of an outbox for people who watch it: on a terminal, or in the admin.

A reading costs the database little, whatever the size of the table: each query reads a
bounded number of rows. It shows no payload; keys only to those who ask for them.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from django.db import connections
from django.db.models import QuerySet
from django.db.models.functions import Now

from ..conf import settings
from ..models import (
    ArchivedRecord,
    OutboxRecord,
    ParkedRecord,
    Series,
    SeriesState,
    StagedRecord,
)
from ..wording import rfc_3339
from . import pausing

MAX_COUNTED: Final = 10_000
"""Most rows of a table that are counted, but for the backlog."""
SAMPLE: Final = 10_000
"""Oldest records among which blocked ones and shares of topics are looked for."""
MAX_LISTED: Final = 20
"""Blocked records that are listed, the oldest first."""
MAX_EVENTS: Final = 10
"""Events of each kind, the latest first."""
RATE_WINDOW: Final = 10.0
"""Seconds over which a rate is an average: the database publishes its counters about
once a second, and later when a connection is idle."""

_COUNTERS: Final = """\
-- outbox: counters
SELECT n_tup_ins, n_tup_del FROM pg_stat_user_tables WHERE relid = to_regclass(%s)"""

_LATENCY: Final = """\
-- outbox: latency
SELECT count(*), percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY latency)
FROM (
    SELECT extract(epoch FROM archived_at - create_time) AS latency
    FROM {archive}
    WHERE archived_at > now() - interval '1 minute' AND isfinite(create_time)
    ORDER BY archived_at DESC, id DESC
    LIMIT 1000
) AS latest"""


def read(alias: str, *, with_keys: bool = False) -> dict[str, Any]:
    """
    Return the state of the outbox in a database, ready for JSON.

    Args:
        with_keys: also the shares of keys, which are part of the payload.
    """
    staged = StagedRecord.objects.using(alias)
    found = {
        "time": rfc_3339(database_time(alias)),
        "table": OutboxRecord._meta.db_table,
        "counters": _counters(alias),
        "backlog": OutboxRecord.objects.using(alias).backlog()._asdict(),
        "latency": _latency(alias) if settings.ARCHIVE else None,
        "staged": bounded_count(staged.all()),
        "parked": bounded_count(ParkedRecord.objects.using(alias).all()),
        "blocked": blocked(alias),
        "paused": _paused(alias, with_keys=with_keys),
        "sample": SAMPLE,
        "topics": OutboxRecord.objects.using(alias).shares("kafka_topic", cap=SAMPLE),
        "events": _events(alias),
    }
    if with_keys:
        found["keys"] = OutboxRecord.objects.using(alias).shares(
            "kafka_topic", "kafka_key", cap=SAMPLE
        )
    return found


class Rates(NamedTuple):
    """Records per second."""

    written: float
    """Rows that were inserted, also by transactions that rolled back."""
    sent: float
    """Rows that left the table: sent, and now and then parked or dropped."""


class RateWindow:
    """Turns the counters of successive readings into rates."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int, int]] = deque()

    def rates(self, reading: dict[str, Any]) -> Rates | None:
        """Take a reading; None: it is the first, or the counters began again."""
        moment = datetime.fromisoformat(reading["time"]).timestamp()
        counters = reading["counters"]
        if counters is None:
            return None
        point = (moment, counters["inserted"], counters["deleted"])
        if self._points and point[1:] < self._points[-1][1:]:
            self._points.clear()
        self._points.append(point)
        while len(self._points) > 2 and self._points[1][0] <= moment - RATE_WINDOW:
            self._points.popleft()
        began, inserted, deleted = self._points[0]
        if moment <= began:
            return None
        elapsed = moment - began
        return Rates((point[1] - inserted) / elapsed, (point[2] - deleted) / elapsed)


def database_time(alias: str) -> datetime:
    """Return the time of the database's clock."""
    with connections[alias].cursor() as cursor:
        # Django drops the zone where USE_TZ is off, and an hour comes twice a year.
        cursor.execute("SELECT clock_timestamp() AT TIME ZONE 'UTC'")
        moment: datetime = cursor.fetchone()[0]
    return moment.replace(tzinfo=UTC)


def _counters(alias: str) -> dict[str, int] | None:
    """Return how many rows came and went since the statistics began."""
    connection = connections[alias]
    table = connection.ops.quote_name(OutboxRecord._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(_COUNTERS, [table])
        row = cursor.fetchone()
    return {"inserted": row[0], "deleted": row[1]} if row else None


def _latency(alias: str) -> dict[str, Any]:
    """Return seconds from writing to purging, of the latest records."""
    connection = connections[alias]
    archive = connection.ops.quote_name(ArchivedRecord._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(_LATENCY.format(archive=archive))
        records, percentiles = cursor.fetchone()
    p50, p99 = percentiles or (None, None)
    return {"records": records, "p50": p50, "p99": p99}


def bounded_count(rows: QuerySet[Any], *index: str) -> dict[str, Any]:
    """
    Count rows up to MAX_COUNTED.

    Args:
        index: the columns of an index that has these rows, if they may be few of a
            large table: in its order they are found without a scan of the table.
    """
    records = rows.order_by(*index)[: MAX_COUNTED + 1].count()
    is_capped = records > MAX_COUNTED
    return {"records": min(records, MAX_COUNTED), "is_capped": is_capped}


def blocked(alias: str) -> dict[str, Any]:
    """List blocked ones of the oldest records: there is no index for the others."""
    rows = OutboxRecord.objects.using(alias)
    oldest = rows.order_by("id").values("pk")[:SAMPLE]
    columns = ("id", "kafka_topic", "attempts", "last_error")
    listed = rows.filter(pk__in=oldest).blocked().values(*columns)
    found = list(listed[: MAX_LISTED + 1])
    return {"is_capped": len(found) > MAX_LISTED, "rows": found[:MAX_LISTED]}


def _paused(alias: str, *, with_keys: bool) -> list[dict[str, Any]]:
    """Return what an operator has paused; of a key only its topic, without keys."""
    return [
        {
            "what": pausing.name_of(
                row["kafka_topic"], row["kafka_key"], with_key=with_keys
            ),
            "paused_at": rfc_3339(row["paused_at"]),
            "reason": row["reason"],
        }
        for row in pausing.pauses(alias, limit=MAX_LISTED)
    ]


def _events(alias: str) -> list[dict[str, Any]]:
    """Return what the tables tell of the past, the latest first."""
    parked = ParkedRecord.objects.using(alias).order_by("-parked_id")
    events = [
        {
            "time": rfc_3339(row.parked_at),
            "kind": "record_parked",
            "text": (
                f"Record {row.id} to {row.kafka_topic} was parked after "
                f"{row.attempts} attempts: {row.last_error or 'no error recorded'}"
            ),
        }
        for row in parked.only(
            "parked_id", "id", "parked_at", "kafka_topic", "attempts", "last_error"
        )[:MAX_EVENTS]
    ]
    expired = Series.objects.using(alias).filter(
        closed_at__lte=Now(), state=SeriesState.EXPIRED
    )
    events += [
        {
            "time": rfc_3339(row.closed_at),
            "kind": "series_expired",
            "text": f"Series {row.name} expired: {row.on_timeout}",
        }
        for row in expired.order_by("-closed_at")[:MAX_EVENTS]
        if row.closed_at is not None
    ]
    return latest(events)


def latest(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the latest of these events, the latest first."""
    events.sort(key=lambda event: datetime.fromisoformat(event["time"]), reverse=True)
    return events[:MAX_EVENTS]
