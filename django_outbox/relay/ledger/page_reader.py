"""
Finds rows without marking them: each page once, what commits late, what is left.

`carry_out()` is made in a fiber. What was shown is remembered for one run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ...exceptions import DatabaseBusy, DatabaseError
from ...message.record import Record
from ..availability import Availability
from ..memory_marks import Cursor
from ..ports import UnmarkedTable
from .page_request import Page, PageRequest

KEYS_LIMIT: Final = 1000
"""Rows of blocked keys in one page."""


class PageReader:
    """
    Carries requests to the table.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, *, table: UnmarkedTable, clock: Callable[[], float]) -> None:
        self.outage = Availability()
        self._table = table
        self._clock = clock
        self._run: int | None = None
        self._cursor = Cursor(table, clock)

    def carry_out(self, request: PageRequest) -> Page:
        """Try once; return what was found, or when to try again."""
        if request.run != self._run:
            self._run, self._cursor = request.run, Cursor(self._table, self._clock)
        cursor = self._cursor
        unseen = cursor.unseen
        of_keys: Sequence[Record] = ()
        records: Sequence[Record] = ()
        try:
            if request.keys:
                of_keys = self._table.rows_of_keys(
                    request.keys, cursor.position, limit=KEYS_LIMIT
                )
            if request.sweep is not None:
                records = cursor.swept(request.sweep, limit=request.limit)
            elif request.limit:
                records = cursor.advance(limit=request.limit)
            history = self._table.history()
        except DatabaseError as error:
            if not isinstance(error, DatabaseBusy) or records:
                # Part of the page may have been shown and is lost with it.
                self._run = None
            retry_at = self.outage.lost(error, self._clock())
            return Page(request=request, retry_at=retry_at)
        self.outage.reached(self._clock())
        return Page(
            request=request,
            of_keys=of_keys,
            unseen=unseen,
            records=records,
            history=history,
        )
