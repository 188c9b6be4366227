"""The outbox table with marks: the relay's ports `Outbox` and `Gauge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..exceptions import DatabaseBusy
from ..message.record import Held, Record, Sweep
from .outbox_table import Table

_HIGHEST_ID: Final = 2**63 - 1


class PostgresOutbox(Table):
    """
    Marks and settles rows of one table, for one thread.

    One object does all marks and resets of a leader id: it knows the highest id
    that can be marked.
    """

    _reach: tuple[str, int] = ("", 0)

    def mark(
        self, leader_id: str, *, limit: int, sweep: Sweep | None = None
    ) -> list[Record]:
        reach = self._reach_of(leader_id, unseen=0)
        # Any row may be marked until the outcome is known.
        self._reach = leader_id, _HIGHEST_ID
        try:
            records = self._read("mark", leader_id=leader_id, limit=limit)
        except DatabaseBusy:
            self._reach = leader_id, reach
            raise
        # An UPDATE returns its rows in any order.
        records.sort()
        self._reach = leader_id, max(reach, records[-1].id if records else 0)
        return records

    def reset(self, leader_id: str, lanes: Sequence[Held]) -> None:
        # Rows with lower ids than the one that failed may have been committed since.
        # Without an upper bound, the statement would read the whole backlog.
        highest = self._reach_of(leader_id, unseen=_HIGHEST_ID)
        self._write(
            "reset",
            leader_id=leader_id,
            highest=highest,
            topics=[topic for (topic, _), _ in lanes],
            keys=[key for (_, key), _ in lanes],
            lows=[low for _, low in lanes],
        )

    def _reach_of(self, leader_id: str, *, unseen: int) -> int:
        """Return the highest id that this leader can have marked."""
        known, highest = self._reach
        return highest if known == leader_id else unseen
