"""
What a dispatcher may do under its leader's terms, and what it tells the elector.

A process may be paused between any two lines, and another thread may hand leadership
over. So whether a leader id may act is asked directly before each act, and the answer
is never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .availability import Availability
from .ports import Leadership, Term


class Trust:
    """Callable with a leader id; may be used on any thread."""

    def __init__(self, leadership: Leadership, clock: Callable[[], float]) -> None:
        self._leadership = leadership
        self._clock = clock

    def __call__(self, leader_id: str) -> bool:
        """Whether the present term has this id and is proven at this moment."""
        term = self._leadership.term
        return (
            term is not None
            and term.leader_id == leader_id
            and term.remaining(self._clock()) > 0
        )


class Lease:
    """
    One dispatcher's view of leadership.

    Args:
        outages: how the threads of this dispatcher see the table.
        deadline: seconds without the table after which leadership is given up.
    """

    def __init__(
        self,
        leadership: Leadership,
        *,
        outages: Sequence[Availability],
        deadline: float,
    ) -> None:
        self._leadership = leadership
        self._outages = outages
        self._deadline = deadline
        self._stood_down_from = ""

    @property
    def term(self) -> Term | None:
        """The present term, if this process leads; it may have expired."""
        return self._leadership.term

    def refresh(self, leader_id: str, *, reason: str, now: float) -> Term | None:
        """Take a new leader id in place of this one; None: its term has ended."""
        return self._leadership.refresh(leader_id, reason=reason, now=now)

    def stood_down(self, leader_id: str) -> None:
        """Note that the work under this leader id was given up."""
        self._stood_down_from = leader_id

    def unused(self, term: Term, now: float) -> Term | None:
        """
        Return the term under a leader id that this dispatcher never stood down from.

        The elector may extend a lease a moment after it has ended: then the dispatcher
        has forgotten what it did under the id, and takes a new one. None: the term
        ended.
        """
        if term.leader_id != self._stood_down_from:
            return term
        reason = "the lease had ended before it was extended"
        return self.refresh(term.leader_id, reason=reason, now=now)

    def resign_when_overdue(self, term: Term, now: float) -> None:
        """Give leadership up when the table was out of reach for too long."""
        lost = max(outage.lasts(now) for outage in self._outages)
        # An outage from before this term may be over: nobody has tried since.
        lost = min(lost, now - term.acquired_at)
        if lost >= self._deadline:
            reason = f"no database for {lost:.1f} s"
            self._leadership.resign(term.leader_id, reason=reason)
