"""
Finds rows without marking them: each page once, what commits late, what is left.

`carry_out()` is one look of the thread "mark"; the harvester owns the thread.
It keeps the position and the gaps of the present run (`gaps.py`). What no
reasoning about gaps can find (ids set by hand, a sequence moved back, a row
restored), a sweep from the head finds in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..exceptions import DatabaseError
from ..relay.outage import Outage
from .gaps import Gaps
from .ports import Look, UnmarkedTable

WRITERS_INTERVAL: Final = 0.05
"""Seconds between two questions who writes, which are asked only while there are
gaps."""

HELD_LIMIT: Final = 1000
"""Rows of held lanes in one look."""


class Finder:
    """
    Carries looks to the table.

    Args:
        clock: boot-time seconds.
    """

    def __init__(self, *, table: UnmarkedTable, clock: Callable[[], float]) -> None:
        self.outage = Outage()
        self._table = table
        self._clock = clock
        self._run: int | None = None
        self._gaps = Gaps()
        self._asked_at = 0.0

    def carry_out(self, look: Look) -> None:
        """Try once; fill in what was found, or when to try again."""
        if look.run != self._run:
            self._run, self._gaps = look.run, Gaps()
        try:
            if look.held:
                self._find_held(look)
            if look.is_sweep:
                look.records = self._table.sweep(
                    self._gaps.position,
                    known=look.known,
                    passed=look.passed,
                    limit=look.limit,
                )
            elif look.limit:
                self._find_next(look)
            look.history = self._table.history()
        except DatabaseError as error:
            look.retry_at = self.outage.lost(error, self._clock())
            # Part of it may have been shown and is lost with the look.
            self._run = None
            return
        self.outage.reached(self._clock())

    def _find_held(self, look: Look) -> None:
        look.found = self._table.lanes(look.held, self._gaps.position, limit=HELD_LIMIT)
        if len(look.found) == HELD_LIMIT:
            look.found_to = look.found[-1].id

    def _find_next(self, look: Look) -> None:
        gaps = self._gaps
        look.records = self._table.page(gaps.position, gaps.ranges, limit=look.limit)
        ids = [record.id for record in look.records]
        gaps.shown(ids, is_cut=len(ids) == look.limit)
        now = self._clock()
        if gaps.are_waiting and now >= self._asked_at + WRITERS_INTERVAL:
            self._asked_at = now
            writers, is_one_prepared = self._table.writers()
            gaps.suspect(writers, is_one_prepared=is_one_prepared)
