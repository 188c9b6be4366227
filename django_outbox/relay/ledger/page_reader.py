"""
Finds rows without marking them: each page once, what commits late, what is left.

`carry_out()` is one look, made in a fiber. What was shown is remembered for one run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...exceptions import DatabaseBusy, DatabaseError
from ..availability import Availability
from ..memory_marks import Shown
from ..ports import UnmarkedTable
from .ports import Look

HELD_LIMIT: Final = 1000
"""Rows of held lanes in one look."""


class Finder:
    """
    Carries looks to the table.

    Args:
        clock: boot-time seconds.
    """

    def __init__(self, *, table: UnmarkedTable, clock: Callable[[], float]) -> None:
        self.outage = Availability()
        self._table = table
        self._clock = clock
        self._run: int | None = None
        self._shown = Shown(table, clock)

    def carry_out(self, look: Look) -> None:
        """Try once; fill in what was found, or when to try again."""
        if look.run != self._run:
            self._run, self._shown = look.run, Shown(self._table, self._clock)
        try:
            if look.held:
                position, look.unseen = self._shown.position, self._shown.unseen
                look.found = self._table.lanes(look.held, position, limit=HELD_LIMIT)
            if look.sweep is not None:
                look.records = self._shown.swept(look.sweep, limit=look.limit)
            elif look.limit:
                look.records = self._shown.next(limit=look.limit)
            look.history = self._table.history()
        except DatabaseError as error:
            look.retry_at = self.outage.lost(error, self._clock())
            if not isinstance(error, DatabaseBusy) or look.records:
                # Part of it may have been shown and is lost with the look.
                self._run = None
            return
        self.outage.reached(self._clock())
