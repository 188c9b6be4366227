"""What the gate of the leader group knows after its broker was restarted."""

from __future__ import annotations

import subprocess
import sys
from uuid import uuid4

import pytest

from django_outbox.devstack import Stack
from django_outbox.kafka.join_gate import JoinGate
from tests.waiting import eventually

from .joining import may_enter

NEWCOMER = """
import sys

from django_outbox.election.ports import JoinLater
from django_outbox.kafka.join_gate import JoinGate

servers, group = sys.argv[1:]
gate = JoinGate({"bootstrap.servers": servers}, group=group, session_timeout=600.0)
entered = unanswered = 0
while not unanswered or entered < 1000:
    try:
        gate.enter()
    except JoinLater:
        entered, unanswered = 0, unanswered + entered
        continue
    entered += 1
    if entered == 1 and not unanswered:
        print("entered", flush=True)
"""
"""Asks until the broker is away, and then until it is back."""


@pytest.fixture
def group() -> str:
    return f"test-{uuid4()}"


def test_a_restarted_broker_tells_a_member_soon_who_is_in_the_group(
    private_services: Stack, group: str
) -> None:
    """A client of librdkafka that had asked before the restart may get no answer."""
    servers = private_services.bootstrap_servers
    gate = JoinGate(
        {"bootstrap.servers": servers}, group=group, session_timeout=6.0, shards=2
    )
    eventually(lambda: may_enter(gate))
    private_services.kafka.kill()
    private_services.kafka.start()

    gate.ask()
    eventually(lambda: gate.obstacle() is not None)
    assert gate.obstacle() == ""
    gate.close()


def test_a_newcomer_survives_that_the_broker_is_restarted(
    private_services: Stack, group: str
) -> None:
    """A short time-out of the question let librdkafka abort the process."""
    with subprocess.Popen(
        [sys.executable, "-c", NEWCOMER, private_services.bootstrap_servers, group],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as newcomer:
        try:
            assert newcomer.stdout is not None
            assert newcomer.stdout.readline() == "entered\n"
            private_services.kafka.kill()
            private_services.kafka.start()
            eventually(lambda: newcomer.poll() is not None)
        finally:
            newcomer.kill()
        assert newcomer.stderr is not None
        assert newcomer.returncode == 0, newcomer.stderr.read()
