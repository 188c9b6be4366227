"""All deliberate bugs by name, as a worker of another process can look them up."""

from __future__ import annotations

from typing import Final

from . import (
    cluster_mutants,
    ledger_mutants,
    memory_mutants,
    mutants,
    pause_mutants,
    pipelined_mutants,
    shard_mutants,
)
from .mutant import hunt
from .world import Outcome

MUTANTS: Final = {
    **mutants.MUTANTS,
    **memory_mutants.MUTANTS,
    **pipelined_mutants.MUTANTS,
    **ledger_mutants.MUTANTS,
    **cluster_mutants.MUTANTS,
    **pause_mutants.MUTANTS,
    **shard_mutants.MUTANTS,
}


def hunt_for(name: str, histories: int) -> Outcome | None:
    """Play histories of a deliberate bug until one breaks a promise."""
    return hunt(MUTANTS[name], histories)
