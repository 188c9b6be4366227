"""
The outbox table as one connection of Django sees it, uncommitted rows included.

It implements the relay's ports of a table on the models, so that a relay works inside
the transaction of a test. One connection is one leader, whose marks are in memory; no
other session's locks matter. An error of the database is Django's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db.models import F
from django.utils.timezone import get_default_timezone, is_naive, make_aware

from ..message.pauses import Pauses
from ..message.record import Failure, KeyToRead, Record, Sweep
from ..models import OutboxQuerySet, OutboxRecord, Pause

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class VisibleTable:
    """
    The rows that a test sees.

    Args:
        alias: the database, on whose present connection everything runs.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._shown: set[int] = set()

    def begin(self) -> None:
        self._shown.clear()

    def mark(
        self, leader_id: str, *, limit: int, sweep: Sweep | None = None
    ) -> list[Record]:
        if sweep is not None:
            # No row is committed behind the others: there is one writer.
            return []
        rows = self._rows().exclude(pk__in=self._shown).order_by("pk")[:limit]
        records = [_record(row) for row in rows]
        self._shown.update(record.id for record in records)
        return records

    def reset(self, leader_id: str, keys: Sequence[KeyToRead]) -> None:
        for (topic, key), low in keys:
            rows = self._rows().filter(kafka_topic=topic, kafka_key=key)
            self._shown.difference_update([low, *rows.values_list("pk", flat=True)])

    def purge(self, leader_id: str | None, records: Sequence[Record]) -> int:
        deleted, _models = self._rows(records).delete()
        return deleted

    def fail(self, leader_id: str, failures: Sequence[Failure]) -> int:
        return sum(
            self._rows([record]).update(attempts=F("attempts") + 1, last_error=error)
            for record, error in failures
        )

    def park(self, leader_id: str, failures: Sequence[Failure]) -> int:
        self.fail(leader_id, failures)
        return self._rows().park([record.id for record, _ in failures])

    def kept(self, leader_id: str | None, records: Sequence[Record]) -> set[int]:
        return set(self._rows(records).values_list("pk", flat=True))

    def locked(self, records: Sequence[Record]) -> set[int]:
        return set()

    def ping(self) -> None:
        """Do nothing: an error would have ended the test."""

    def close(self) -> None:
        """Do nothing: the connection is the test's."""

    def pauses(self) -> Pauses:
        rows = Pause.objects.using(self._alias)
        return Pauses.of(rows.values_list("kafka_topic", "kafka_key"))

    def timeline(self) -> str:
        return ""

    def _rows(self, records: Sequence[Record] | None = None) -> OutboxQuerySet:
        rows = OutboxRecord.objects.using(self._alias)
        if records is None:
            return rows.all()
        return rows.filter(pk__in=[record.id for record in records])


def _record(row: OutboxRecord) -> Record:
    raw, created = row.kafka_value_bytes, row.create_time or _EPOCH
    if is_naive(created):
        # USE_TZ = False: then Django's connections have the project's time zone.
        created = make_aware(created, get_default_timezone())
    return Record(
        id=row.pk,
        topic=row.kafka_topic,
        key=row.kafka_key,
        value=row.kafka_value if raw is None else bytes(raw),
        header_keys=row.kafka_header_keys,
        header_values=row.kafka_header_values,
        partition=row.kafka_partition,
        message_id=str(row.message_id),
        created_at=str((created - _EPOCH) // timedelta(microseconds=1)),
        cluster_id=row.cluster_id,
        attempts=row.attempts,
    )
