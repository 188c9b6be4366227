"""
The table's side of marking: resets what is due, then marks from the head.

`carry_out()` is one round trip, made in a fiber: a mark of a thousand rows takes ten
milliseconds, in which acknowledged keys would wait for the dispatcher twice, once to
be purged and once to go on.

Resets share the fiber and its connection with marks, so that a lane's rows are
reset before the next mark looks for them, never while it does.
"""

from __future__ import annotations

from collections.abc import Callable

from ...exceptions import DatabaseBusy, DatabaseError
from ...message.record import Claim
from ..availability import Availability
from ..ports import MarkedTable
from ..trust import Trust


class Marker:
    """
    Carries claims to the table.

    Args:
        is_trusted: asked directly before each write.
        clock: boot-time seconds.
    """

    def __init__(
        self, *, outbox: MarkedTable, is_trusted: Trust, clock: Callable[[], float]
    ) -> None:
        self.outage = Availability()
        self._outbox = outbox
        self._is_trusted = is_trusted
        self._clock = clock

    def carry_out(self, claim: Claim) -> None:
        """Try once; fill in what was marked, or when to try again."""
        outbox, leader_id = self._outbox, claim.leader_id
        try:
            if not claim.lanes and not claim.limit:
                outbox.ping()
            if claim.lanes and not self._is_trusted(leader_id):
                # Their rows must not count as reset if the lease is extended now.
                claim.retry_at, claim.is_uncertain = self._clock(), True
                return
            if claim.lanes:
                # B2: what failed is to be found again.
                outbox.reset(leader_id, claim.lanes)
            if claim.limit and self._is_trusted(leader_id):
                claim.records = outbox.mark(
                    leader_id, limit=claim.limit, sweep=claim.sweep
                )
        except DatabaseError as error:
            claim.retry_at = self.outage.lost(error, self._clock())
            claim.is_uncertain = not isinstance(error, DatabaseBusy)
            return
        self.outage.reached(self._clock())
