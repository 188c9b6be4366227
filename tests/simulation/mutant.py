"""
A deliberate bug, and the search for a history that shows it.

`mutants.py` has those of the relay that marks rows, `ledger_mutants.py` those
of the relay that keeps a ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from .history import play
from .plan import DELIVERIES
from .world import Outcome


class Mutant(NamedTuple):
    """One method, replaced by a broken one."""

    owner: Any
    method: str
    replacement: Callable[..., Any]
    profile: str
    """Which histories to search."""
    delivery: str = "at-least-once"
    """... and of which relay."""
    is_property: bool = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the code for a while."""
        broken: Any = self.replacement
        if self.is_property:
            broken = property(broken)
        with patch.object(self.owner, self.method, broken):
            yield


def named(mutants: Iterable[Mutant]) -> Mapping[str, Mutant]:
    """Find each by the name of what replaces a method."""
    return {m.replacement.__name__.replace("_", "-"): m for m in mutants}


def hunt(mutant: Mutant, histories: int) -> Outcome | None:
    """Play histories of a mutant's profile until one breaks a promise."""
    profiles = [profile.name for profile in DELIVERIES[mutant.delivery]]
    first = profiles.index(mutant.profile)
    with mutant.applied():
        for turn in range(histories):
            outcome = play(first + turn * len(profiles), mutant.delivery)
            if outcome.broken:
                return outcome
    return None
