"""What a dispatcher asks of the table, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..message.pauses import Pauses
from ..message.record import KeyToRead, Record, Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """
    Asks for a page of the table.

    With nothing to read it only checks whether the table can be reached.
    """

    run: int
    """A new run begins at the head of the table."""
    leader_id: str
    """UUID as text: for whom rows are read."""
    keys: Sequence[KeyToRead] = ()
    """Blocked keys whose rows this page and the next ones show again."""
    limit: int = 0
    """Most rows to read; 0 reads none."""
    looks_for_pauses: bool = False
    """Read what is paused, too; in a new run that is always read."""
    sweep: Sweep | None = None
    """Read the rows that a repair scan finds, instead of the next ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer to one request."""

    request: PageRequest
    records: Sequence[Record] = ()
    """The rows, in the order of their ids."""
    pauses: Pauses | None = None
    """What was paused before the rows were read; None: that was not looked for."""
    timeline: str = ""
    """Names the timeline of the database, where there was nothing to read."""
    retry_at: float | None = None
    """Monotonic seconds of the next attempt, if this one failed."""
    is_uncertain: bool = False
    """After a failure: whether only a new leader id finds all rows again."""
