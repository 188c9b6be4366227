"""What the join check does with its client where no broker answers."""

from __future__ import annotations

import pytest

from django_outbox.kafka import join_gate
from django_outbox.kafka.join_gate import JoinGate
from tests.waiting import eventually


def test_a_question_that_is_answered_needs_no_new_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To make one may take ten seconds, on the thread that proves the leadership."""
    monkeypatch.setattr(join_gate, "ANSWER_TIMEOUT", 0.0)
    monkeypatch.setattr(join_gate, "ANSWER_WAIT", 0.0)
    servers = {"bootstrap.servers": "127.0.0.1:1"}
    gate = JoinGate(servers, group="g", session_timeout=6.0, shards=2)
    gate.ask()
    assert eventually(gate.obstacle)
    made: list[str] = []
    monkeypatch.setattr(gate, "_made", lambda: made.append("another"))
    count = gate._errors.count

    eventually(lambda: gate.obstacle() and gate._errors.count > count + 2)

    assert made == []
    gate.close()
