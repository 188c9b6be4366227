"""What a dispatcher asks of the table, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..message.record import KeyToRead, Record, Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """
    Asks for a page of the table.

    Without keys and limit it only checks whether the table can be reached.
    """

    run: int
    """A new run begins at the head of the table."""
    leader_id: str
    """UUID as text: for whom rows are read."""
    keys: Sequence[KeyToRead] = ()
    """Blocked keys whose rows this page and the next ones show again."""
    limit: int = 0
    """Most rows to read; 0 reads none."""
    sweep: Sweep | None = None
    """Read the rows that a repair scan finds, instead of the next ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer to one request."""

    request: PageRequest
    records: Sequence[Record] = ()
    """The rows, in the order of their ids."""
    timeline: str = ""
    """Names the timeline of the database, where the request has neither keys nor
    limit."""
    retry_at: float | None = None
    """Monotonic seconds of the next attempt, if this one failed."""
    is_uncertain: bool = False
    """After a failure: whether only a new leader id finds all rows again."""
