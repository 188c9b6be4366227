"""
What a person does to single records: park, skip, release.

`manage.py outbox` and the admin site call these functions. Each acts in one statement
on records of its table that are still as wanted, so that two people who do the same
thing at the same time do it once.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Literal

from django.db.models import QuerySet

from ..models import OutboxRecord, ParkedRecord
from ..wording import count

logger = logging.getLogger(__name__)

DESCRIBED: Final = ("id", "message_id", "kafka_topic", "attempts", "last_error")
"""Columns that say which record it is, without its payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How many of the wanted records were changed."""

    done: int
    wanted: int

    @property
    def left(self) -> int:
        """Records that stay as they were."""
        return self.wanted - self.done


def park(alias: str, ids: Collection[int]) -> Outcome:
    """
    Move blocked records to the parked table, so that their keys go on.

    Later records of a key then go out of order with the parked one. Records whose
    delivery has not failed stay: a leader may be sending them.
    """
    wanted = set(ids)
    done = OutboxRecord.objects.using(alias).park(wanted)
    return _logged("park", "Parked %d of %d records by hand: %s", done, wanted)


def skip(alias: str, ids: Collection[int]) -> Outcome:
    """
    Delete blocked records unsent, so that their keys go on.

    **The messages are lost.** Records whose delivery has not failed stay: a leader may
    be sending them.
    """
    wanted = set(ids)
    done = OutboxRecord.objects.using(alias).skip(wanted)
    return _logged("skip", "Dropped %d of %d blocked records: %s", done, wanted)


def skip_parked(alias: str, parked_ids: Collection[int]) -> Outcome:
    """Delete parked records unsent, by `parked_id`: **their messages are lost**."""
    wanted = set(parked_ids)
    rows = ParkedRecord.objects.using(alias).filter(parked_id__in=wanted)
    done, _models = rows.delete()
    return _logged("skip", "Dropped %d of %d parked records: %s", done, wanted)


def release(alias: str, parked_ids: Collection[int] | Literal["all"]) -> Outcome:
    """
    Put parked records back into the outbox, by `parked_id`, under their old ids.

    A record stays parked if its old id is in use.
    """
    rows = ParkedRecord.objects.using(alias)
    if parked_ids == "all":
        wanted = set(rows.values_list("parked_id", flat=True))
        # There may be more than a statement can have parameters.
        rows = rows.filter(parked_id__lte=max(wanted, default=0))
    else:
        wanted = set(parked_ids)
        rows = rows.filter(parked_id__in=wanted)
    done = rows.release()
    return _logged("release", "Released %d of %d parked records: %s", done, wanted)


def blocked_records(alias: str, ids: Collection[int]) -> list[dict[str, Any]]:
    """Describe those of these records that `park()` and `skip()` would take."""
    rows = OutboxRecord.objects.using(alias).blocked().filter(pk__in=set(ids))
    return list(rows.values(*DESCRIBED))


def parked_records(alias: str, parked_ids: Collection[int]) -> list[dict[str, Any]]:
    """Describe those of these records that are parked."""
    rows = ParkedRecord.objects.using(alias).filter(parked_id__in=set(parked_ids))
    return list(rows.order_by("parked_id").values("parked_id", *DESCRIBED))


def failed_record(row: dict[str, Any]) -> str:
    """Name a record and how often its delivery has failed."""
    attempts = count(row["attempts"], "attempt")
    return f"record {row['id']} to {row['kafka_topic']}, {attempts}"


def last_error(row: dict[str, Any]) -> str:
    """Return why a record's delivery failed the last time."""
    return row["last_error"] or "no error recorded"


def still_there(rows: QuerySet[Any], pks: Collection[int]) -> set[int]:
    """Return which of these primary keys a table still has."""
    return set(rows.order_by().filter(pk__in=set(pks)).values_list("pk", flat=True))


def _logged(action: str, text: str, done: int, wanted: set[int]) -> Outcome:
    ids = sorted(wanted)
    logger.info(text, done, len(ids), ids[:100], extra={"action": action})
    return Outcome(done=done, wanted=len(ids))
