"""The report of `manage.py outbox status`: backlog, paused, parked, blocked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Now

from ..clusters import cluster_status
from ..conf import settings
from ..models import OutboxRecord, ParkedRecord, Series, StagedRecord
from ..operations import pausing
from ..wording import count, duration
from . import identity, pause_verbs

MAX_LISTED: Final = 20
"""Rows of a kind that are listed, the oldest first."""


def report(alias: str) -> dict[str, Any]:
    """Return the state of the outbox in a database, ready for JSON."""
    staged = StagedRecord.objects.using(alias)
    found = {
        "table": OutboxRecord._meta.db_table,
        "identity": identity.report(alias),
        "backlog": OutboxRecord.objects.using(alias).backlog()._asdict(),
        "staged": {
            "series": Series.objects.using(alias).open().count(),
            "in_series": staged.in_series().count(),
            "delayed": staged.delayed().count(),
        },
        "paused": pausing.pauses(alias),
        "parked": _parked(alias),
        "blocked": _blocked(alias),
    }
    if settings.CLUSTERS_COUNT > 1:
        found["clusters"] = cluster_status.report(alias)
    return found


def describe(found: dict[str, Any]) -> Iterator[str]:
    """Describe the report in lines."""
    yield from identity.describe(found["identity"])
    backlog, staged = found["backlog"], found["staged"]
    waiting = count(backlog["records"], "record", is_capped=backlog["is_capped"])
    yield f"waiting  {waiting}, oldest {duration(backlog['oldest_age'])}"
    yield from pause_verbs.describe(found["paused"])
    if "clusters" in found:
        yield from cluster_status.describe(found["clusters"])
    yield (
        f"staged   {count(staged['in_series'], 'record')} in {staged['series']:,} open "
        f"series, {staged['delayed']:,} for later"
    )
    parked = found["parked"]
    yield f"parked   {count(parked['records'], 'record')}"
    for row in parked["rows"]:
        age = duration(row["age"])
        yield f"  {row['parked_id']}  {_failed(row)}, parked {age} ago: {_error(row)}"
    if more := parked["records"] - len(parked["rows"]):
        yield f"  and {more:,} more"
    blocked = found["blocked"]
    capped = blocked["is_capped"]
    yield f"blocked  {count(len(blocked['rows']), 'record', is_capped=capped)}"
    for row in blocked["rows"]:
        yield f"  {_failed(row)}: {_error(row)}"
    if capped:
        yield "  and more"


def _parked(alias: str) -> dict[str, Any]:
    rows = ParkedRecord.objects.using(alias)
    parked_for = ExpressionWrapper(Now() - F("parked_at"), output_field=DurationField())
    listed = rows.order_by("parked_id").values(
        *("parked_id", "id", "kafka_topic", "attempts", "last_error"), age=parked_for
    )[:MAX_LISTED]
    return {
        "records": rows.count(),
        "rows": [{**row, "age": row["age"].total_seconds()} for row in listed],
    }


def _blocked(alias: str) -> dict[str, Any]:
    rows = OutboxRecord.objects.using(alias).blocked()
    # Counting them all would read the whole table: there is no index for them.
    found = list(
        rows.values("id", "kafka_topic", "attempts", "last_error")[: MAX_LISTED + 1]
    )
    return {"is_capped": len(found) > MAX_LISTED, "rows": found[:MAX_LISTED]}


def _failed(row: dict[str, Any]) -> str:
    attempts = count(row["attempts"], "attempt")
    return f"record {row['id']} to {row['kafka_topic']}, {attempts}"


def _error(row: dict[str, Any]) -> str:
    return row["last_error"] or "no error recorded"
