"""What a table without faults makes of settlements."""

from __future__ import annotations

from django_outbox.relay.settlement import Settled, Settlement


def settled(settlement: Settlement, *, purged: int | None = None) -> Settled:
    """Return the outcome of a settlement; some rows may have been gone."""
    acknowledged, poisoned = settlement.acknowledged, settlement.poisoned
    return Settled(
        settlement=settlement,
        acknowledged=acknowledged,
        poisoned=poisoned,
        purged=len(acknowledged) if purged is None else purged,
        parked=len(poisoned),
    )
