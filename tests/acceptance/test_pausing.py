"""What is paused waits, whichever process leads, and goes on in order."""

from __future__ import annotations

import pytest

from ..machine import nightly
from ..services import Topics
from ..waiting import eventually
from .auditing import PARTITIONS, deliveries
from .harvesters import MODES, Harvesters, modes
from .tables import OutboxTable
from .test_on_call import ask


@pytest.fixture(params=modes(by_day=["pipelined"]))
def environment(
    environment: dict[str, str], request: pytest.FixtureRequest
) -> dict[str, str]:
    """Every kind of relay."""
    return {**environment, **MODES[request.param]}


def ids_in(topics: Topics, topic: str) -> list[int]:
    return [d.id for d in deliveries(topics.read(topic))]


def test_a_paused_topic_waits_and_goes_on_in_order(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    other = topics.create(partitions=PARTITIONS)
    leader, standby = harvesters.start_ready(2)
    sent = table.insert(topic, "a", count=3)
    table.wait_until_empty()
    code, found = ask(harvesters, "pause", topic, "--reason", "a release")
    assert (code, found["changed"]) == (0, 1)
    leader.wait_for_log(f"Paused now: {topic}")
    held = table.insert(topic, "a", count=10)
    killed_at = leader.kill()
    harvesters.wait_for_leader(after=killed_at)
    held += table.insert(topic, "a", count=2500)
    free = table.insert(other, "b", count=2500)
    eventually(lambda: table.ids() == held)
    assert ids_in(topics, other) == free
    assert ids_in(topics, topic) == sent

    code, found = ask(harvesters, "resume", topic)
    assert (code, found["changed"]) == (0, 1)
    table.wait_until_empty()
    assert ids_in(topics, topic) == [*sent, *held]
    assert standby.all("leader_fenced", "leader_revoked") == []


@nightly
def test_a_paused_key_and_a_paused_outbox_wait(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    ask(harvesters, "pause", topic, "--key", "held")
    leader = harvesters.start()
    held = table.insert(topic, "held", count=5)
    free = table.insert(topic, "free", count=5)
    eventually(lambda: table.ids() == held)
    assert ids_in(topics, topic) == free

    leader.terminate()
    assert leader.exit_code() == 0
    ask(harvesters, "pause", "--all")
    harvesters.start().wait_for("leader_acquired")
    all_held = table.insert(topic, "free", count=5)
    code, found = ask(harvesters, "resume", topic, "--key", "held")
    assert code == 0
    assert [row["kafka_topic"] for row in found["pauses"]] == [""]
    assert table.ids() == [*held, *all_held]
    assert ids_in(topics, topic) == free

    ask(harvesters, "resume", "--all")
    table.wait_until_empty()
    arrived = ids_in(topics, topic)
    assert [n for n in arrived if n in held] == held
    assert [n for n in arrived if n in free + all_held] == free + all_held
