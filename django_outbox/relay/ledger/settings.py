"""The amounts and the timing of the ledger relay."""

from __future__ import annotations

from dataclasses import dataclass

from ..settings import RelaySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings(RelaySettings):
    """How much one transaction carries, and how long it may take."""

    batch: int
    """Records of one transaction at most."""
    delivery_timeout: float
    """Seconds for the records of one transaction to be acknowledged."""
    clusters: int = 1
    """How many there are, and so how far apart the ids of one of them are."""
