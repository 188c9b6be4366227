"""
The outbox table under the ledger relay: the shipped fake, with all truths kept.

Statements take effect at the moment of the call; `ledger_connection.py` adds
the way to the server and back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from django_outbox.exceptions import DatabaseUnavailable
from django_outbox.message.record import Record
from tests.fakes.unmarked import InMemoryStandby, InMemoryUnmarked

from .table import Row

if TYPE_CHECKING:
    from .failovers import FailoverWorld
    from .ledger_world import LedgerWorld


class LedgerTable(InMemoryUnmarked):
    """Rows are told apart by their message ids, which are serial numbers here."""

    def __init__(self, world: LedgerWorld | FailoverWorld) -> None:
        super().__init__()
        self.committed: dict[str, Row] = {}
        """Every row that was ever committed, in the order of the commits."""
        self.lost: set[str] = set()
        """Rows that a failover took away."""
        self.returned: Counter[str] = Counter()
        """How often a failover has kept a row, or brought it back."""
        self.robbed: frozenset[str] = frozenset()
        self.has_failed_over = False
        self._world = world
        self._replicated: dict[int, tuple[int, str]] = {}

    @property
    def rows(self) -> Mapping[int, object]:
        return self._rows

    @property
    def parked_ids(self) -> set[str]:
        return {failure.record.message_id for failure in self.parked}

    # What the application does.

    def commit(self, rows: Iterable[Row], name: str = "") -> bool:
        """Make the rows of one transaction visible, if its server is still there."""
        rows = list(rows)
        records = [row.record for row in rows]
        try:
            if name:
                self.end(name, records)
            else:
                self.put(records)
        except DatabaseUnavailable:
            return False
        self.committed.update((row.record.message_id, row) for row in rows)
        return True

    def roll_back(self, name: str) -> None:
        """End a transaction that has nothing to show."""
        if name in self._locks:
            self.end(name)

    # What operators and disasters do.

    def standby(self) -> InMemoryStandby:
        standby = super().standby()
        self._replicated[id(standby)] = len(self.committed), self.database_timeline()
        return standby

    def promote(self, standby: InMemoryStandby) -> None:
        world = self._world
        count, timeline = self._replicated[id(standby)]
        if timeline != self.database_timeline():
            # Another one has been promoted since.
            return
        replicated = list(self.committed)[:count]
        self.lost |= self.committed.keys() - replicated
        self.returned.update(record.message_id for record in standby.records)
        super().promote(standby)
        self.has_failed_over = True
        world.away_until["table"] = world.time() + world.dice.uniform(0.0, 0.1)
        world.trace("FAULT", f"promotes a standby with {sorted(self._rows)}")

    # What leaders do.

    def purge(self, leader_id: str | None, records: Sequence[Record]) -> int:
        for row in self._owned(leader_id, records):
            self._world.promises.on_purge(leader_id, row.record)
        return super().purge(leader_id, records)
