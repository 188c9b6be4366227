"""How far a run of the ledger relay has come."""

from __future__ import annotations

from enum import Enum, auto


class Stage(Enum):
    """How far a run has come."""

    CLOSED = auto()
    """No client: this process does not lead, or has to begin again."""
    OPENED = auto()
    """The ledger is read, and the table is asked which history it has."""
    CLEARING = auto()
    """What the ledger lists is being purged."""
    RELAYING = auto()
