"""A leader's term, and an elector that a test tells what to know."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Term:
    """A leader id that is proven until a moment of the test's clock."""

    leader_id: str = "id-1"
    shard: int = 0
    acquired_at: float = 0.0
    trusted_until: float = 1e9

    def remaining(self, now: float) -> float:
        return self.trusted_until - now


class Leadership:
    """Leads from the start; each refresh counts its leader id up."""

    shard = 0

    def __init__(self) -> None:
        self.term: Term | None = Term()
        self.reasons: list[str] = []
        """Why leader ids were refreshed."""
        self.resigned = ""
        """Why leadership was given up."""

    @property
    def leader_id(self) -> str:
        """That of the present term."""
        assert self.term is not None
        return self.term.leader_id

    def refresh(self, leader_id: str, *, reason: str, now: float) -> Term | None:
        self.reasons.append(reason)
        number = int(self.leader_id[3:]) + 1
        assert self.term is not None
        self.term = replace(self.term, leader_id=f"id-{number}")
        return self.term

    def resign(self, leader_id: str, *, reason: str) -> None:
        self.resigned = reason
