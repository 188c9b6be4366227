"""
The application: transactions that write rows, and some that do not commit.

Writers of one key wait for each other until the end of their transactions, as
`stash(ordered=True)` has them. Between keys nothing is ordered: ids are drawn
at the insert, commits come later, so rows turn up behind marked ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_outbox.message.record import OrderingKey, Record

from .table import Row

if TYPE_CHECKING:
    from .world import World


class Writers:
    """All writers of a history; they share a sequence and the keys' locks."""

    def __init__(self, world: World) -> None:
        plan = world.plan
        self.left = plan.rows
        """Rows still to be written, committed or not."""
        self.open = 0
        """Transactions under way."""
        self.rolled_back: set[int] = set()
        self._world = world
        self._dice = world.dice
        self._last_id = 0
        self._serial = 0
        """Counts rows, which never ends; ids may be given again."""
        self._locked: set[OrderingKey] = set()
        # One topic with poison leaves the keys of the other alone.
        self.ordering_keys = [(f"t{n % 2}", f"k{n}") for n in range(plan.keys)]
        self._pause = plan.trouble / max(1, plan.rows - plan.backlog)

    @property
    def is_busy(self) -> bool:
        """Whether there is more to come."""
        return self.left > 0 or self.open > 0

    def start(self) -> None:
        """Write the backlog at once, the rest while the trouble lasts."""
        self.left -= self._world.plan.backlog
        backlog = (
            self._insert(self.ordering_keys) for _ in range(self._world.plan.backlog)
        )
        self._world.table.commit(backlog)
        for _ in range(self._world.plan.writers):
            self._world.time.after(self._dice.uniform(0.0, 0.3), self._begin)

    def _begin(self) -> None:
        """Start a transaction on one or two keys that nobody writes to."""
        if self.left <= 0:
            return
        free = [
            ordering_key
            for ordering_key in self.ordering_keys
            if ordering_key not in self._locked
        ]
        if not free:
            self._world.time.after(self._dice.uniform(0.005, 0.02), self._begin)
            return
        ordering_keys = self._dice.sample(
            free, min(len(free), self._dice.choice((1, 1, 2)))
        )
        self._locked.update(ordering_keys)
        self.open += 1
        self._insert_one(
            ordering_keys, self._begin_rows(), self._dice.choice((1, 1, 2, 3, 6))
        )

    def _insert_one(
        self, ordering_keys: list[OrderingKey], rows: list[Row], more: int
    ) -> None:
        if more and self.left > 0:
            self.left -= 1
            row = self._insert(ordering_keys)
            if self._dice.random() < 0.1:
                # A savepoint that is rolled back takes its row along.
                self.rolled_back.add(row.record.id)
                self._world.count("savepoint rolled back")
            else:
                rows.append(row)
            self._later(lambda: self._insert_one(ordering_keys, rows, more - 1))
        else:
            self._later(lambda: self._end(ordering_keys, rows))

    def _begin_rows(self) -> list[Row]:
        """Return where a transaction keeps its rows."""
        return []

    def _end(self, ordering_keys: list[OrderingKey], rows: list[Row]) -> None:
        is_committed = not self._world.is_table_away and self._dice.random() >= 0.1
        if not self._commit(rows, is_committed=is_committed):
            self.rolled_back.update(row.record.id for row in rows)
            self._world.count("transaction rolled back")
        else:
            ids = [row.record.id for row in rows]
            self._world.trace("writer", f"commits {ids} of {ordering_keys}")
        self._locked.difference_update(ordering_keys)
        self.open -= 1
        self._later(self._begin)

    def _commit(self, rows: list[Row], *, is_committed: bool) -> bool:
        """End a transaction; return whether its rows are there."""
        if is_committed:
            self._world.table.commit(rows)
        return is_committed

    def _draw_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _insert(self, ordering_keys: list[OrderingKey]) -> Row:
        """Draw an id."""
        self._serial += 1
        topic, key = self._dice.choice(ordering_keys)
        poison = ""
        if self._dice.random() < self._world.weather.poison:
            poison = self._dice.choice(("topic", "size"))
            self._world.count(f"poison: {poison}")
        return Row(
            Record(
                id=self._draw_id(),
                topic=topic,
                key=key,
                value="v",
                header_keys=[],
                header_values=[],
                partition=None,
                message_id=str(self._serial),
                created_at="0",
                cluster_id=0,
                attempts=0,
            ),
            poison,
        )

    def _later(self, action: object) -> None:
        assert callable(action)
        pause = self._dice.expovariate(1.0) * self._pause
        self._world.time.after(min(pause, 0.3), action)
