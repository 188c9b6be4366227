"""
Single rows that cannot be written: locked for a while, or refused until trouble ends.

A write that meets such a row has no effect on any row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from django_outbox.exceptions import DatabaseBusy, DatabaseError

if TYPE_CHECKING:
    from .world import World


UNPARKED: Final = 10
"""How many times as often a row is refused by the parked table: few go there."""


class RowTrouble:
    """The locks and the triggers of one table."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._locked_until: dict[int, float] = {}
        self._refused: set[int] = set()

    def met(self, name: str, ids: Sequence[int]) -> DatabaseError | None:
        """Return what a write of these rows meets; trouble may begin now."""
        self._begin(ids, UNPARKED if name == "park" else 1)
        if self.locked(ids):
            return DatabaseBusy("a row is locked")
        if not self._refused.isdisjoint(ids):
            return DatabaseError("a trigger refuses a row")
        return None

    def locked(self, ids: Sequence[int]) -> set[int]:
        """Return which of these rows another session has locked."""
        now = self._world.time()
        return {id for id in ids if self._locked_until.get(id, 0.0) > now}

    def has_met(self, id: int) -> bool:
        """Whether a row was ever in trouble."""
        return id in self._locked_until or id in self._refused

    @property
    def refused(self) -> set[int]:
        """Rows of the table that a trigger refuses."""
        return {id for id in self._refused if id in self._world.table.rows}

    def end(self, *, but: int = 0) -> None:
        """Commit what holds locks, and drop the triggers but those of some rows."""
        stays = set(sorted(self.refused, key=self._is_sound)[:but])
        self._locked_until = dict.fromkeys(
            self._locked_until.keys() | self._refused - stays, 0.0
        )
        self._refused = stays

    def _is_sound(self, id: int) -> tuple[bool, int]:
        """Order poison first: a row that cannot be parked is the worst case."""
        return not getattr(self._world.table.rows[id], "poison", ""), id

    def _begin(self, ids: Sequence[int], factor: int) -> None:
        world, weather = self._world, self._world.weather
        if not ids or not (weather.row_locked or weather.row_refused):
            return
        luck = world.dice.random()
        if luck < weather.row_locked:
            world.count("row locked")
            seconds = world.dice.uniform(0.05, 2.0)
            self._locked_until[world.dice.choice(ids)] = world.time() + seconds
        elif luck < weather.row_locked + factor * weather.row_refused:
            world.count("row refused")
            self._refused.add(world.dice.choice(ids))
