"""
The table's side of reading: shows blocked keys again, then reads the next page.

`carry_out()` may block for as long as a statement does; the dispatcher serves
acknowledgements meanwhile. Resets share the connection with pages, so that a key's
rows are reset before the next page, never beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ..exceptions import DatabaseBusy, DatabaseError
from ..message.pauses import NOTHING_PAUSED, Pauses
from ..message.record import Record
from .availability import Availability, OutageLog
from .lease import Trust
from .page_request import Page, PageRequest
from .ports import ReadTable

logger = logging.getLogger(__name__)


class PageReader:
    """
    Carries requests to the table.

    Args:
        is_trusted: asked directly before each access that may change the table.
        clock: monotonic seconds.
        outage_log: shared by all connections that would meet the same outage.
    """

    def __init__(
        self,
        table: ReadTable,
        *,
        is_trusted: Trust,
        clock: Callable[[], float],
        outage_log: OutageLog | None = None,
    ) -> None:
        self.outage = Availability(outage_log=outage_log)
        self._table = table
        self._is_trusted = is_trusted
        self._clock = clock
        self._run: int | None = None
        self._pauses = NOTHING_PAUSED

    def carry_out(self, request: PageRequest) -> Page:
        """Try once; return what was read, or when to try again."""
        table, leader_id = self._table, request.leader_id
        records: Sequence[Record] = ()
        pauses: Pauses | None = None
        timeline = ""
        looks = request.looks_for_pauses
        try:
            if looks or request.run != self._run:
                # Before the rows: those that are written after a pause are held.
                pauses = self._note(table.pauses())
            if request.run != self._run:
                table.begin()
                self._run = request.run
            if not (request.keys or request.limit or looks):
                table.ping()
                timeline = table.timeline()
            if request.keys and not self._is_trusted(leader_id):
                # Their rows must not count as reset if the lease is extended now.
                return Page(request=request, retry_at=self._clock(), is_uncertain=True)
            if request.keys:
                # B2: what failed is to be found again.
                table.reset(leader_id, request.keys)
            if request.limit and self._is_trusted(leader_id):
                # A3
                records = table.mark(
                    leader_id, limit=request.limit, sweep=request.sweep
                )
        except DatabaseError as error:
            return Page(
                request=request,
                pauses=pauses,
                retry_at=self.outage.lost(error, self._clock()),
                # A part of the page may be marked, or count as read.
                is_uncertain=not isinstance(error, DatabaseBusy),
            )
        self.outage.reached(self._clock())
        return Page(request=request, records=records, pauses=pauses, timeline=timeline)

    def _note(self, pauses: Pauses) -> Pauses:
        if pauses != self._pauses:
            logger.info("Paused now: %s", pauses, extra={"action": "pauses"})
        self._pauses = pauses
        return pauses
