"""
What holds of a ledger under the history that the table has now.

Ids are unique under one history of a database: its system identifier and
timeline. It is checked when a ledger was read, and with each page.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from .ports import Ledger

logger = logging.getLogger(__name__)


def believed(ledger: Ledger | None, history: str, *, clusters: int) -> Ledger:
    """
    Return what to go on from: the ledger, or what of it is not void.

    Args:
        history: that of the table.
        clusters: how many there are.
    """
    if ledger is None:
        return Ledger(history=history, records=[])
    # Other clusters, when only they have written, know no history of this table.
    known = {"", history} if clusters > 1 else {history}
    if ledger.history not in known:
        logger.warning(
            "The ledger speaks of another history of the database (%s, now %s) "
            "and is void: all that is in the table is sent",
            ledger.history or "none",
            history,
            extra={"action": "ledger_void"},
        )
        return Ledger(history=history, records=[])
    if ledger.relayed and clusters == 1:
        logger.warning(
            "The ledger has %d ranges of ids, which one cluster alone does not "
            "write: they are void",
            len(ledger.relayed),
            extra={"action": "ledger_void"},
        )
        ledger = replace(ledger, relayed=())
    return replace(ledger, history=history)
