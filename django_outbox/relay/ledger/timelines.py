"""
What holds of a ledger under the timeline that the database has now.

Ids are unique on one timeline of a database, named with its system identifier. It
is checked when a ledger was read, and with each page.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from .ports import Ledger

logger = logging.getLogger(__name__)


def believed(ledger: Ledger | None, timeline: str, *, clusters: int) -> Ledger:
    """
    Return what to go on from: the ledger, or what of it is not void.

    Args:
        timeline: that of the table's database.
        clusters: how many there are.
    """
    if ledger is None:
        return Ledger(timeline=timeline, records=[])
    # Other clusters, when only they have written, know no timeline of this table.
    known = {"", timeline} if clusters > 1 else {timeline}
    if ledger.timeline not in known:
        logger.warning(
            "Ignoring the ledger of database timeline %s (now %s); sending every row "
            "in the outbox again",
            ledger.timeline or "none",
            timeline,
            extra={"action": "ledger_void"},
        )
        return Ledger(timeline=timeline, records=[])
    if ledger.relayed and clusters == 1:
        logger.warning(
            "The ledger has %d ranges of ids, which one cluster alone does not "
            "write: they are void",
            len(ledger.relayed),
            extra={"action": "ledger_void"},
        )
        ledger = replace(ledger, relayed=())
    return replace(ledger, timeline=timeline)
