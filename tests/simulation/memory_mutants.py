"""Deliberate bugs of marks in memory; see `mutants.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from django_outbox.message.record import Record, Sweep
from django_outbox.relay import gaps
from django_outbox.relay.gaps import Gaps
from django_outbox.relay.memory_marks import MemoryMarks

from .connection import Connection
from .ledger_connection import UnmarkedConnection
from .ledger_mutants import (
    bare_cursor,
    forget_gaps_at_once,
    forget_gaps_of_prepared_writers,
    gaps_and_page_in_two_snapshots,
)
from .mutant import Mutant, named

_begin = MemoryMarks.begin
_mark = MemoryMarks.mark
_shown = Gaps.shown


def remember_across_leader_ids(self: MemoryMarks) -> None:
    """Go on where the former leader id has been."""
    if not hasattr(self, "_cursor"):
        _begin(self)


def blocked_keys_are_forgotten(
    self: MemoryMarks, leader_id: str, ordering_keys: object
) -> None:
    """Leave the rows of a key that failed to the next leader id."""


def reset_keys_end_with_their_first_page(
    self: MemoryMarks, end: int, position: int
) -> None:
    """Take a key for shown although the page was cut before its end."""
    self._again.clear()


def oldest_gaps_are_dropped(self: Gaps, ids: Sequence[int]) -> None:
    """Leave gaps beyond a number to the sweep."""
    _shown(self, ids)
    del self._gaps[: -gaps.MAX_GAPS]


def failover_goes_unnoticed(self: MemoryMarks, timeline: str) -> None:
    """Go on where the former timeline was read, although ids are given again."""


def nothing_is_swept(
    self: MemoryMarks, leader_id: str, *, limit: int, sweep: Sweep | None = None
) -> list[Record]:
    """Trust in gaps alone."""
    return [] if sweep else _mark(self, leader_id, limit=limit)


def writability_is_not_asked(self: Connection) -> bool:
    """Lead although nothing can leave the table."""
    return False


def _of_memory(mutants: Iterable[Mutant]) -> Iterable[Mutant]:
    return (mutant._replace(delivery="marks-in-memory") for mutant in mutants)


_OWN: Final = _of_memory(
    (
        Mutant(MemoryMarks, "begin", remember_across_leader_ids, "database"),
        Mutant(MemoryMarks, "reset", blocked_keys_are_forgotten, "broker"),
        Mutant(MemoryMarks, "_advance", reset_keys_end_with_their_first_page, "poison"),
        Mutant(MemoryMarks, "mark", nothing_is_swept, "graceful"),
        Mutant(
            Connection,
            "is_read_only",
            writability_is_not_asked,
            "database",
            is_property=True,
        ),
    )
)
_SHARED: Final = _of_memory(
    (
        Mutant(Gaps, "note_writers", forget_gaps_at_once, "graceful"),
        Mutant(Gaps, "note_writers", forget_gaps_of_prepared_writers, "graceful"),
        Mutant(Gaps, "shown", bare_cursor, "graceful"),
        Mutant(Gaps, "shown", oldest_gaps_are_dropped, "database"),
        Mutant(UnmarkedConnection, "page", gaps_and_page_in_two_snapshots, "graceful"),
    )
)
_FAILOVER: Final = Mutant(
    MemoryMarks, "_check", failover_goes_unnoticed, "promoted", delivery="failover"
)
MUTANTS: Final = {
    **named(_OWN),
    "memory-failover-goes-unnoticed": _FAILOVER,
    **{f"memory-{name}": mutant for name, mutant in named(_SHARED).items()},
}
"""By name."""
