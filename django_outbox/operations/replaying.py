"""
Sends archived records again: the archive has what was sent (setting ARCHIVE).

A record that is sent again is a new row of the outbox with the key, value, headers and
message id of the old one. Consumers that have processed the message id skip it. It
comes behind everything that waits, so out of order with newer records of its key.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connections

from ..models import ArchivedQuerySet, ArchivedRecord, OutboxRecord
from .by_hand import DESCRIBED

logger = logging.getLogger(__name__)

MAX_REPLAYED: Final = 1_000
"""Records of one replay: longer histories come from the lake."""

_LEFT_OUT: Final = {"id", "create_time", "leader_id", "attempts", "last_error"}
"""Columns that belong to the first delivery. The new row has its own."""

_REPLAY: Final = """\
-- outbox: replay
INSERT INTO {outbox} ({columns})
SELECT {columns} FROM {archive}
WHERE archived_at >= %(since)s AND archived_at < %(until)s AND id = ANY(%(ids)s)
AND %(topic)s::text IN ('', kafka_topic)
ORDER BY archived_at, id"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which archived records. The times bound what the database reads."""

    since: datetime
    """Sent then or later."""
    until: datetime
    """Sent before."""
    topic: str = ""
    """Of this topic; empty: of any."""
    id: int | None = None
    """With this id in the outbox; None: any."""


def matches(alias: str, selection: Selection) -> tuple[list[dict[str, Any]], bool]:
    """Describe the first records, in the order of sending; also whether more match."""
    chosen: ArchivedQuerySet = ArchivedRecord.objects.using(alias).filter(
        archived_at__gte=selection.since, archived_at__lt=selection.until
    )
    if selection.topic:
        chosen = chosen.filter(kafka_topic=selection.topic)
    if selection.id is not None:
        chosen = chosen.filter(id=selection.id)
    rows = chosen.order_by("archived_at", "id").values("archived_at", *DESCRIBED)
    found = list(rows[: MAX_REPLAYED + 1])
    return found[:MAX_REPLAYED], len(found) > MAX_REPLAYED


def replay(alias: str, selection: Selection) -> list[dict[str, Any]]:
    """Send the first records that match again; return which these are."""
    found, _is_more = matches(alias, selection)
    quote = connections[alias].ops.quote_name
    columns = [
        quote(field.column)
        for field in OutboxRecord._meta.concrete_fields
        if field.column and field.name not in _LEFT_OUT
    ]
    statement = _REPLAY.format(
        outbox=quote(OutboxRecord._meta.db_table),
        archive=quote(ArchivedRecord._meta.db_table),
        columns=", ".join(columns),
    )
    values: dict[str, Any] = {
        "since": selection.since,
        "until": selection.until,
        "ids": [row["id"] for row in found],
        # Where ids began again, several records have one.
        "topic": selection.topic,
    }
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, values)
    logger.info("Sending %d records again", len(found), extra={"action": "replay"})
    return found
