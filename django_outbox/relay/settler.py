"""
The settling side of MP/R: purge what is acknowledged, note what failed, park.

`settle()` is one round trip, made in a fiber and repeated if necessary. No settlement
is given up while its process harvests: to purge an acknowledged record is right at
any time, since the leader id scopes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..exceptions import DatabaseError
from ..message.record import Failure, Settlement
from .availability import Availability
from .ports import SettledTable

logger = logging.getLogger(__name__)


class Settler:
    """
    Carries settlements to the table.

    Args:
        on_parked: told of each record that now lies in the parked table.
        clock: boot-time seconds.
    """

    def __init__(
        self,
        *,
        outbox: SettledTable,
        on_parked: Callable[[str, Failure], None],
        clock: Callable[[], float],
    ) -> None:
        self.outage = Availability()
        self._outbox = outbox
        self._on_parked = on_parked
        self._clock = clock

    def settle(self, settlement: Settlement) -> float | None:
        """
        Try once to bring the table in line with a settlement.

        Returns None when that is done, or, while the table is out of reach,
        the time (boot-time seconds) at which to try the same again.
        """
        outbox, leader_id = self._outbox, settlement.leader_id
        if not settlement.is_uncertain:
            _log_failures(settlement)
        try:
            if settlement.purged is None:
                # B1: the records are in the log, so their rows go.
                settlement.purged = self._purge(settlement)
            if settlement.failed:
                outbox.fail(leader_id, settlement.failed)
            if settlement.poisoned:
                settlement.parked = outbox.park(leader_id, settlement.poisoned)
        except DatabaseError as error:
            settlement.is_uncertain = True
            return self.outage.lost(error, self._clock())
        self.outage.reached(self._clock())
        for failure in settlement.poisoned:
            self._on_parked(leader_id, failure)
        return None

    def _purge(self, settlement: Settlement) -> int:
        if not settlement.acknowledged:
            return 0
        # After a try without an answer, missing rows may be its work, or rows
        # that somebody else has marked: only a new mark can tell.
        return self._outbox.purge(settlement.leader_id, settlement.acknowledged)


def _log_failures(settlement: Settlement) -> None:
    """Say once for each settlement what was not delivered: an outage is many."""
    if failures := settlement.failed + settlement.poisoned:
        record, error = failures[0]
        logger.warning(
            "%s records were not delivered; record %s to %s: %s",
            len(failures),
            record.id,
            record.topic,
            error,
            extra={"action": "delivery_failed", "records": len(failures)},
        )
