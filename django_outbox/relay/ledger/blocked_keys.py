"""
Blocked keys: a record of theirs cannot be sent, and none may overtake it.

A key is blocked when its record has failed. Its followers are skipped and stay in the
table; when the back-off is over, the key's first row is read and sent alone, and
once it has been sent the rest follows, page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...message.record import KeyToRead, OrderingKey, Record
from ..blocked_key import NEVER, BlockedKey
from .page_request import Page


class BlockedKeys:
    """The blocked keys of one run."""

    def __init__(self) -> None:
        self.by_key: dict[OrderingKey, BlockedKey] = {}
        self._asked: dict[OrderingKey, BlockedKey] = {}

    def passes(self, record: Record) -> bool:
        """Whether a row stays in the table, because its key is blocked."""
        blocked = self.by_key.get(record.ordering_key)
        if blocked is None:
            return False
        blocked.low = min(blocked.low, record.id)
        return True

    def due(self, now: float, *, has_room: bool) -> list[KeyToRead]:
        """Return the keys to read; the next page answers for them."""
        self._asked = {
            ordering_key: blocked
            for ordering_key, blocked in self.by_key.items()
            if blocked.until <= now and (blocked.attempts or has_room)
        }
        return [
            KeyToRead(ordering_key, blocked.low)
            for ordering_key, blocked in self._asked.items()
        ]

    @property
    def retry_at(self) -> float:
        """Monotonic seconds at which the first key is due."""
        return min((blocked.until for blocked in self.by_key.values()), default=NEVER)

    def found(
        self, page: Page, now: float, is_known: Callable[[Record], bool]
    ) -> tuple[list[Record], list[Record]]:
        """
        Take the rows of a page that answers for blocked keys.

        Returns those to try alone, and those that may follow. A key without
        any more is no longer blocked.
        """
        asked, self._asked = self._asked, {}
        rows: dict[OrderingKey, list[Record]] = {}
        for record in page.of_keys:
            rows.setdefault(record.ordering_key, []).append(record)
        probes: list[Record] = []
        followers: list[Record] = []
        for ordering_key, blocked in asked.items():
            # A key that has failed since then waits for another page.
            if self.by_key.get(ordering_key) is not blocked:
                continue
            found = [
                record
                for record in rows.get(ordering_key, ())
                if record.id >= blocked.low
            ]
            if not page.of_keys:
                del self.by_key[ordering_key]
                continue
            fresh = [record for record in found if not is_known(record)]
            if blocked.attempts and fresh:
                probes.append(fresh[0])
                blocked.low, blocked.until = fresh[0].id + 1, NEVER
                continue
            followers += fresh
            # There may be more behind the last row that was read, and in gaps before.
            blocked.low, blocked.until = min(page.of_keys[-1].id + 1, page.unseen), now
        return probes, followers

    def failed(self, record: Record) -> None:
        """Block a record's key from this record on."""
        blocked = self.by_key.get(record.ordering_key)
        low = min(record.id, blocked.low) if blocked else record.id
        self.by_key[record.ordering_key] = BlockedKey(low, record.attempts + 1)

    def gone(self, records: Iterable[Record], now: float) -> None:
        """Let the rest follow where a key's first row was tried and has gone."""
        for record in records:
            blocked = self.by_key.get(record.ordering_key)
            if blocked is not None and blocked.attempts:
                blocked.attempts, blocked.until = 0, now
