"""
The application of the ledger relay, which marks nothing: all that ids can do.

Transactions hold a lock from before their first id to their end, some of them
in two phases; and somebody inserts rows with ids of his own.
"""

from __future__ import annotations

from django_outbox.message.record import OrderingKey

from .table import Row
from .writers import Writers


class _Rows(list[Row]):
    """The rows of one transaction, and the name of its lock."""

    name = ""


class LedgerWriters(Writers):
    """Draws ids from the table's own sequence."""

    def _begin_rows(self) -> list[Row]:
        rows = _Rows()
        rows.name = self._world.table.lock()
        return rows

    def _draw_id(self) -> int:
        return self._world.table.draw_id()

    def _end(self, ordering_keys: list[OrderingKey], rows: list[Row]) -> None:
        world = self._world
        assert isinstance(rows, _Rows), "from _begin_rows"
        names, _ = world.table.writers()
        can_prepare = rows.name in names and not rows.name.startswith("-")
        if can_prepare and self._dice.random() < world.weather.prepared:
            world.count("transaction prepared")
            former, rows.name = rows.name, world.table.lock(is_prepared=True)
            world.table.roll_back(former)
            pause = self._dice.uniform(0.05, 0.4)
            world.time.after(pause, lambda: self._end(ordering_keys, rows))
            return
        super()._end(ordering_keys, rows)
        if self._dice.random() < world.weather.by_hand:
            self._insert_by_hand()

    def _commit(self, rows: list[Row], *, is_committed: bool) -> bool:
        assert isinstance(rows, _Rows), "from _begin_rows"
        table = self._world.table
        if is_committed:
            return table.commit(rows, rows.name)  # type: ignore[call-arg]
        table.roll_back(rows.name)
        return False

    def _insert_by_hand(self) -> None:
        """Commit a row whose id lies somewhere behind, on a key of its own."""
        world = self._world
        row = self._insert([("t0", f"hand{self._serial}")])
        self.rolled_back.add(row.record.id)
        # Nobody draws these (again): they are behind the sequence, or never in it.
        free = [] if world.table.has_failed_over else sorted(self.rolled_back)
        number = self._dice.choice([*free[:3], self._number_behind()])
        self.rolled_back.discard(number)
        world.count("id set by hand")
        row.record = row.record._replace(id=number)
        world.table.commit([row])

    def _number_behind(self) -> int:
        """Return an id that is before all that are drawn."""
        return -self._serial
