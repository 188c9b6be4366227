"""
Acknowledged records whose rows the table does not release yet.

They are in the log, so they are never sent again by this process: not under its next
leader id either, which finds their rows in the table once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..message.record import Record
from .settlement import Settled, Settlement


class StuckRows:
    """Which records are in the rest of a settlement, and under which leader id."""

    def __init__(self) -> None:
        self._leader_ids: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._leader_ids)

    def settled(self, settled: Settled) -> None:
        """Note what has left the table, and what was left in it."""
        for record in settled.acknowledged if self._leader_ids else ():
            self._leader_ids.pop(record.id, None)
        if (rest := settled.rest) is not None:
            leader_id = settled.settlement.leader_id
            for record in rest.acknowledged:
                self._leader_ids.setdefault(record.id, leader_id)

    def without(self, records: Sequence[Record], leader_id: str) -> Sequence[Record]:
        """Drop these rows from what was read; where it counts, they are remarked."""
        if not self._leader_ids:
            return records
        others: list[Record] = []
        for record in records:
            if record.id in self._leader_ids:
                self._leader_ids[record.id] = leader_id
            else:
                others.append(record)
        return others

    def remarked(self, rest: Settlement) -> Sequence[Settlement]:
        """Return a rest in parts, each under the leader id that its rows have now."""
        rows: dict[str, list[Record]] = {rest.leader_id: []} if rest.poisoned else {}
        for record in rest.acknowledged:
            leader_id = self._leader_ids.get(record.id, rest.leader_id)
            rows.setdefault(leader_id, []).append(record)
        return [
            replace(
                rest,
                leader_id=leader_id,
                acknowledged=acknowledged,
                poisoned=rest.poisoned if leader_id == rest.leader_id else [],
            )
            for leader_id, acknowledged in rows.items()
        ]
