"""Keys whose records wait in the table: one of them cannot be sent, or is paused."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

from ..message.pauses import NOTHING_PAUSED, Pauses
from ..message.record import KeyToRead, OrderingKey, Record, Sweep

NEVER: Final = inf

RECHECK_INTERVAL: Final = 0.05
"""Seconds until a key is looked at again whose earlier records are still under way."""


@dataclass(slots=True)
class BlockedKey:
    """When a blocked key is retried, and from which row on."""

    low: int
    """The lowest id of its rows that is still to be read."""
    attempts: int
    """How often its first record has failed; 0: it only has to leave the table."""
    until: float = NEVER
    """Monotonic seconds to read it again at; NEVER while something is under way."""


class BlockedKeys(dict[OrderingKey, BlockedKey]):
    """All blocked keys, and when the first of them is due."""

    retry_at: float = NEVER
    """Monotonic seconds."""
    pauses: Pauses = NOTHING_PAUSED
    """What an operator has paused beside them; the first page of a run tells."""

    def keeps(self, record: Record) -> bool:
        """Whether a row stays in the table; then it has to be read again."""
        if self.pauses.holds(record):
            return True
        blocked = self.get(record.ordering_key)
        if blocked is None:
            return False
        blocked.low = min(blocked.low, record.id)
        return True

    def retry(self, blocked: BlockedKey, at: float) -> None:
        """Have a key read again at this time."""
        blocked.until = at
        self.retry_at = min(self.retry_at, at)

    def due(self, now: float, under_way: Collection[OrderingKey]) -> list[KeyToRead]:
        """Return the keys to be read now; those under way are looked at later."""
        due: list[KeyToRead] = []
        for key, blocked in self.items():
            if blocked.until > now:
                continue
            if key in under_way:
                # Earlier records of the key go first.
                blocked.until = now + RECHECK_INTERVAL
            else:
                due.append(KeyToRead(key, blocked.low))
        if not due:
            self._plan()
        return due

    def unblock(self, keys: Iterable[OrderingKey]) -> None:
        """Let these keys go on."""
        for key in keys:
            self.pop(key, None)
        self._plan()

    def sweep(self, known: Collection[int]) -> Sweep:
        """Tell what a repair scan passes over, beside what is known."""
        passed = (*self, *self.pauses.keys)
        return Sweep(frozenset(known), passed, self.pauses.topics)

    def clear(self) -> None:
        """Let all keys go on, and forget what is paused."""
        super().clear()
        self.pauses = NOTHING_PAUSED
        self.retry_at = NEVER

    def _plan(self) -> None:
        self.retry_at = min((b.until for b in self.values()), default=NEVER)
