"""
Acknowledged records whose rows the table does not release yet.

They are in the log, so they are never sent again by this process: not under its next
leader id either, which finds their rows in the table once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..message.record import Record, Settlement


class StuckRows:
    """Which records are in the rest of a settlement."""

    def __init__(self) -> None:
        self._rests: dict[int, Settlement] = {}

    def __len__(self) -> int:
        return len(self._rests)

    def settled(self, settlement: Settlement) -> None:
        """Note what has left the table, and what was left in it."""
        if self._rests:
            for record in settlement.acknowledged:
                self._rests.pop(record.id, None)
        if (rest := settlement.rest) is not None:
            rest.leader_id = settlement.leader_id
            self._rests.update({record.id: rest for record in rest.acknowledged})

    def without(self, records: Sequence[Record], leader_id: str) -> Sequence[Record]:
        """Drop these rows from what was read; where it counts, they are remarked."""
        if not self._rests:
            return records
        others: list[Record] = []
        for record in records:
            if rest := self._rests.get(record.id):
                rest.leader_id = leader_id
            else:
                others.append(record)
        return others
