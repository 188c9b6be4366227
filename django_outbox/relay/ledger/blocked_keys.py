"""
Lanes that are held: a record of theirs cannot be sent, and none may overtake it.

A lane is held when its record has failed. Its followers are skipped and stay in the
table; when the back-off is over, the lane's first row is read and sent alone, and
once it has been sent the rest follows, page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...message.record import Held, Lane, Record
from ..blocked_key import NEVER, BlockedKey
from .ports import Look


class Holds:
    """The held lanes of one run."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, BlockedKey] = {}
        self._asked: dict[Lane, BlockedKey] = {}

    def passes(self, record: Record) -> bool:
        """Whether a row stays in the table, because its lane is held."""
        hold = self.lanes.get(record.lane)
        if hold is None:
            return False
        hold.low = min(hold.low, record.id)
        return True

    def due(self, now: float, *, has_room: bool) -> list[Held]:
        """Return the lanes to read; the next look answers for them."""
        self._asked = {
            lane: hold
            for lane, hold in self.lanes.items()
            if hold.until <= now and (hold.attempts or has_room)
        }
        return [Held(lane, hold.low) for lane, hold in self._asked.items()]

    @property
    def retry_at(self) -> float:
        """Boot-time seconds at which the first lane is due."""
        return min((hold.until for hold in self.lanes.values()), default=NEVER)

    def found(
        self, look: Look, now: float, is_known: Callable[[Record], bool]
    ) -> tuple[list[Record], list[Record]]:
        """
        Take the rows of a look that answers for held lanes.

        Returns those to try alone, and those that may follow. A lane without
        any more is held no longer.
        """
        asked, self._asked = self._asked, {}
        rows: dict[Lane, list[Record]] = {}
        for record in look.found:
            rows.setdefault(record.lane, []).append(record)
        probes: list[Record] = []
        followers: list[Record] = []
        for lane, hold in asked.items():
            # A lane that has failed since then waits for another look.
            if self.lanes.get(lane) is not hold:
                continue
            found = [record for record in rows.get(lane, ()) if record.id >= hold.low]
            if not look.found:
                del self.lanes[lane]
                continue
            fresh = [record for record in found if not is_known(record)]
            if hold.attempts and fresh:
                probes.append(fresh[0])
                hold.low, hold.until = fresh[0].id + 1, NEVER
                continue
            followers += fresh
            # There may be more behind the last row that was read, and in gaps before.
            hold.low, hold.until = min(look.found[-1].id + 1, look.unseen), now
        return probes, followers

    def failed(self, record: Record) -> None:
        """Hold a record's lane from this record on."""
        hold = self.lanes.get(record.lane)
        low = min(record.id, hold.low) if hold else record.id
        self.lanes[record.lane] = BlockedKey(low, record.attempts + 1)

    def gone(self, records: Iterable[Record], now: float) -> None:
        """Let the rest follow where a lane's first row was tried and has gone."""
        for record in records:
            hold = self.lanes.get(record.lane)
            if hold is not None and hold.attempts:
                hold.attempts, hold.until = 0, now
