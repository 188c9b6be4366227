"""The way to a table that nobody marks, and back: its ports, with faults."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from django_outbox.message.record import KeyToRead, Record, Sweep
from django_outbox.relay.ports import Others

from .connection import Connection


class UnmarkedConnection(Connection):
    """One thread's view of the table; it blocks that thread only."""

    id_increment = 1
    shards = 1

    @property
    def _view(self) -> Any:
        """The rows that this leader may be shown."""
        return self._table

    def page(
        self,
        position: int,
        gaps: Sequence[tuple[int, int]],
        keys_to_read: Sequence[KeyToRead] = (),
        *,
        limit: int,
        end: int | None = None,
    ) -> list[Record]:
        find = partial(self._view.page, position, gaps, keys_to_read, limit=limit)
        # Only a leader of several does not read to the end of the table.
        find = find if end is None else partial(find, end=end)
        records = self._execute("page", find)
        if records and self._world.dice.random() < 0.5:
            # They take their time to arrive, and much goes on meanwhile.
            self._process.sleep(self._world.dice.uniform(0.0, 0.03))
        return records

    def others(self, position: int, *, limit: int) -> Others:
        raise NotImplementedError

    def writers(self) -> tuple[frozenset[str], bool]:
        return self._execute("writers", self._table.writers)

    def sweep(self, position: int, sweep: Sweep, *, limit: int) -> list[Record]:
        return self._execute(
            "sweep", lambda: self._view.sweep(position, sweep, limit=limit)
        )


class LedgerConnection(UnmarkedConnection):
    """What the ledger relay asks of it."""

    def database_timeline(self) -> str:
        return self._execute("timeline", self._table.database_timeline)

    def kept(self, leader_id: str | None, records: Sequence[Record]) -> set[int]:
        return self._execute("kept", lambda: self._table.kept(leader_id, records))

    def purge(self, leader_id: str | None, records: Sequence[Record]) -> int:
        ids = [record.id for record in records]
        return self._write("purge", ids, lambda: self._table.purge(leader_id, records))
