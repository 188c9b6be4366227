"""What MP/R's dispatcher asks of the marker, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...message.record import KeyToRead, Record, Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRequest:
    """
    Asks for a page of the table.

    Without keys and limit it only checks whether the table can be reached.
    """

    leader_id: str
    """UUID as text: for whom rows are marked and reset."""
    keys: Sequence[KeyToRead] = ()
    """Keys to reset before rows are marked."""
    limit: int = 0
    """Most rows to mark; 0 marks none."""
    sweep: Sweep | None = None
    """Mark the rows that a repair scan finds, instead of the next ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedPage:
    """The answer to one request."""

    request: MarkRequest
    records: Sequence[Record] = ()
    """The marked rows, in the order of their ids."""
    retry_at: float | None = None
    """Monotonic seconds of the next attempt, if this one failed."""
    is_uncertain: bool = False
    """Whether the marks of this leader id are unknown after a failed attempt."""
