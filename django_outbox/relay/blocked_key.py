"""A key whose records wait in the table, because one of them cannot be sent."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

NEVER: Final = inf


@dataclass(slots=True)
class BlockedKey:
    """How a blocked key goes on."""

    low: int
    """The lowest id of its rows that is still to be read."""
    attempts: int
    """How often its first record has failed; 0: only the others have to follow."""
    until: float = NEVER
    """Monotonic seconds to read it again at; NEVER while something is under way."""
