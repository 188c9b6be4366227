"""Tries the gate of the leader group."""

from __future__ import annotations

from django_outbox.election.ports import JoinLater
from django_outbox.kafka.join_gate import JoinGate


def may_enter(join_gate: JoinGate) -> bool:
    """Whether a process may join now."""
    try:
        join_gate.enter()
    except JoinLater:
        return False
    return True
