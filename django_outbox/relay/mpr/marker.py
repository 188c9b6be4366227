"""
The table's side of marking: resets what is due, then marks from the head.

`carry_out()` is one round trip, made in a fiber: a mark of a thousand rows takes ten
milliseconds, in which the dispatcher would serve no acknowledgements.

Resets share the fiber and its connection with marks, so that a key's rows are
reset before the next mark, never beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...exceptions import DatabaseBusy, DatabaseError
from ...message.record import Record
from ..availability import Availability
from ..lease import Trust
from ..ports import MarkedTable
from .mark_request import MarkedPage, MarkRequest


class Marker:
    """
    Carries requests to the table.

    Args:
        is_trusted: asked directly before each write.
        clock: monotonic seconds.
    """

    def __init__(
        self, *, outbox: MarkedTable, is_trusted: Trust, clock: Callable[[], float]
    ) -> None:
        self.outage = Availability()
        self._outbox = outbox
        self._is_trusted = is_trusted
        self._clock = clock

    def carry_out(self, request: MarkRequest) -> MarkedPage:
        """Try once; return what was marked, or when to try again."""
        outbox, leader_id = self._outbox, request.leader_id
        records: Sequence[Record] = ()
        try:
            if not request.keys and not request.limit:
                outbox.ping()
            if request.keys and not self._is_trusted(leader_id):
                # Their rows must not count as reset if the lease is extended now.
                return MarkedPage(
                    request=request, retry_at=self._clock(), is_uncertain=True
                )
            if request.keys:
                # B2: what failed is to be found again.
                outbox.reset(leader_id, request.keys)
            if request.limit and self._is_trusted(leader_id):
                records = outbox.mark(
                    leader_id, limit=request.limit, sweep=request.sweep
                )
        except DatabaseError as error:
            return MarkedPage(
                request=request,
                retry_at=self.outage.lost(error, self._clock()),
                is_uncertain=not isinstance(error, DatabaseBusy),
            )
        self.outage.reached(self._clock())
        return MarkedPage(request=request, records=records)
