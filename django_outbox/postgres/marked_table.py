"""The outbox table with marks: the relay's ports `Outbox` and `Gauge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..exceptions import DatabaseBusy
from ..message.record import HIGHEST_ID, KeyToRead, OrderingKey, Record, Sweep
from .outbox_table import Table
from .parameters import ids_of, message_ids_of


class PostgresOutbox(Table):
    """
    Marks and settles rows of one table, for one thread.

    One object does all marks and resets of a leader id: it knows the highest id
    that can be marked.
    """

    _reach: tuple[str, int] = ("", 0)
    _expects_locks = False
    """Whether the last mark passed over a locked row: the next one looks for locks
    first, instead of waiting for one until the time-out."""

    def begin(self) -> None:
        """Nothing is remembered: the marks are in the table."""

    def timeline(self) -> str:
        """Marks are of a leader id, whatever the timeline."""
        return ""

    def mark(
        self, leader_id: str, *, limit: int, sweep: Sweep | None = None
    ) -> list[Record]:
        reach = self._reach_of(leader_id, unseen=0)
        # Any row may be marked until the outcome is known.
        self._reach = leader_id, HIGHEST_ID
        try:
            records = self._mark(leader_id, limit)
        except DatabaseBusy:
            self._reach = leader_id, reach
            raise
        # An UPDATE returns its rows in any order.
        records.sort()
        self._reach = leader_id, max(reach, records[-1].id if records else 0)
        return records

    def _mark(self, leader_id: str, limit: int) -> list[Record]:
        """Mark a page; where a row is locked, without the rows of its key."""
        locked = self._locked_keys(leader_id, limit) if self._expects_locks else []
        self._expects_locks = bool(locked)
        values = {"leader_id": leader_id, "limit": limit}
        try:
            if not locked:
                return self._read("mark", **values)
            return self._read("mark_others", **values, **_arrays_of(locked))
        except DatabaseBusy:
            locked = self._locked_keys(leader_id, limit)
            if not locked:
                # The whole table is locked, or the row no longer is.
                raise
        self._expects_locks = True
        return self._read("mark_others", **values, **_arrays_of(locked))

    def _locked_keys(self, leader_id: str, limit: int) -> list[OrderingKey]:
        """Find the keys that the next page has to pass over."""
        locked: list[OrderingKey] = []
        values = {"leader_id": leader_id, "limit": limit}
        while True:
            with self._session("locked_keys") as connection:
                statement = self._statements(connection)["locked_keys"]
                found = connection.execute(statement, values | _arrays_of(locked))
                keys = [(topic, key) for topic, key in found.fetchall()]
            if not keys:
                return locked
            # Without these the page reaches further, where more may be locked.
            locked += keys

    def reset(self, leader_id: str, keys: Sequence[KeyToRead]) -> None:
        # Rows with lower ids than the one that failed may have been committed since.
        # Without an upper bound, the statement would read the whole backlog.
        highest = self._reach_of(leader_id, unseen=HIGHEST_ID)
        self._write(
            "reset",
            leader_id=leader_id,
            highest=highest,
            **_arrays_of([key for key, _ in keys]),
            lows=[low for _, low in keys],
        )

    def purge(self, leader_id: str | None, records: Sequence[Record]) -> int:
        if leader_id is not None:
            return super().purge(leader_id, records)
        message_ids = message_ids_of(records)
        return self._write(f"{self._purge}_any", ids=ids_of(records), **message_ids)

    def kept(self, leader_id: str | None, records: Sequence[Record]) -> set[int]:
        if leader_id is not None:
            return super().kept(leader_id, records)
        return self._ids("kept_any", records, **message_ids_of(records))

    def _reach_of(self, leader_id: str, *, unseen: int) -> int:
        """Return the highest id that this leader can have marked."""
        known, highest = self._reach
        return highest if known == leader_id else unseen


def _arrays_of(keys: Sequence[OrderingKey]) -> dict[str, Any]:
    """Return the parameters for these keys."""
    return {
        "topics": [topic for topic, _ in keys],
        "keys": [key for _, key in keys],
    }
