"""
Whether a leader id may act now: asked directly before each act.

A process may be paused between any two lines, and leadership may be handed
over by another thread; so the answer is never kept.
"""

from __future__ import annotations

from collections.abc import Callable

from .ports import Leadership


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
