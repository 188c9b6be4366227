"""
The report of `manage.py outbox status`: backlog, paused, parked, blocked.

It reads a bounded number of rows, whatever the size of the tables. With several
clusters it also counts all waiting records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Now

from ..clusters import cluster_status
from ..conf import settings
from ..models import OutboxRecord, ParkedRecord, Series, StagedRecord
from ..operations import live_reading, pausing
from ..operations.by_hand import failed_record, last_error
from ..wording import count, duration
from . import identity_verb, pause_verbs

MAX_LISTED: Final = 20
"""Parked records that are listed, the oldest first."""


def report(alias: str) -> dict[str, Any]:
    """Return the state of the outbox in a database, ready for JSON."""
    found = {
        "table": OutboxRecord._meta.db_table,
        "identity": identity_verb.report(alias),
        "backlog": OutboxRecord.objects.using(alias).backlog()._asdict(),
        "staged": _staged(alias),
        "paused": pausing.pauses(alias),
        "parked": _parked(alias),
        "blocked": live_reading.blocked(alias),
    }
    if settings.CLUSTERS_COUNT > 1:
        found["clusters"] = cluster_status.report(alias)
    return found


def describe(found: dict[str, Any]) -> Iterator[str]:
    """Describe the report in lines."""
    yield from identity_verb.describe(found["identity"])
    backlog, staged = found["backlog"], found["staged"]
    waiting = count(backlog["records"], "record", is_capped=backlog["is_capped"])
    yield f"waiting  {waiting}, oldest {duration(backlog['oldest_age'])}"
    yield from pause_verbs.describe(found["paused"])
    if "clusters" in found:
        yield from cluster_status.describe(found["clusters"])
    yield _describe_staged(staged)
    parked = found["parked"]
    set_aside = count(parked["records"], "record", is_capped=parked["is_capped"])
    yield f"parked   {set_aside}"
    for row in parked["rows"]:
        age = duration(row["age"])
        what = f"{row['parked_id']}  {failed_record(row)}, parked {age} ago"
        yield f"  {what}: {last_error(row)}"
    if (more := parked["records"] - len(parked["rows"])) > 0:
        yield f"  and {'at least ' if parked['is_capped'] else ''}{more:,} more"
    blocked = found["blocked"]
    capped, sample = blocked["is_capped"], live_reading.SAMPLE
    listed = count(len(blocked["rows"]), "record", is_capped=capped)
    where = f" among the oldest {sample:,}" if backlog["records"] > sample else ""
    yield f"blocked  {listed}{where}"
    for row in blocked["rows"]:
        yield f"  {failed_record(row)}: {last_error(row)}"
    if capped:
        yield "  and more"


def _staged(alias: str) -> dict[str, Any]:
    staged = StagedRecord.objects.using(alias)
    is_open = Series.objects.using(alias).open()
    counted = {
        "series": live_reading.bounded_count(is_open, "expires_at"),
        "in_series": live_reading.bounded_count(
            staged.in_series(), "series_id", "staged_id"
        ),
        "delayed": live_reading.bounded_count(
            staged.delayed(), "not_before", "staged_id"
        ),
    }
    return {
        **{name: found["records"] for name, found in counted.items()},
        "is_capped": any(found["is_capped"] for found in counted.values()),
    }


def _describe_staged(staged: dict[str, Any]) -> str:
    def is_capped(name: str) -> bool:
        cap = live_reading.MAX_COUNTED
        return bool(staged["is_capped"] and staged[name] >= cap)

    def figure(name: str) -> str:
        return f"{staged[name]:,}{'+' if is_capped(name) else ''}"

    records = count(staged["in_series"], "record", is_capped=is_capped("in_series"))
    series, delayed = figure("series"), figure("delayed")
    return f"staged   {records} in {series} open series, {delayed} for later"


def _parked(alias: str) -> dict[str, Any]:
    rows = ParkedRecord.objects.using(alias)
    parked_for = ExpressionWrapper(Now() - F("parked_at"), output_field=DurationField())
    listed = rows.order_by("parked_id").values(
        *("parked_id", "id", "kafka_topic", "attempts", "last_error"), age=parked_for
    )[:MAX_LISTED]
    return {
        **live_reading.bounded_count(rows),
        "rows": [{**row, "age": row["age"].total_seconds()} for row in listed],
    }
