"""What somebody on call finds out with the commands of the runbook alone."""

from __future__ import annotations

from typing import Any

import pytest

from ..processes import Process
from ..services import Topics
from ..waiting import eventually
from .auditing import deliveries
from .harvesters import MODES, Harvesters, modes
from .tables import OutboxTable


def ask(harvesters: Harvesters, *verb: str) -> tuple[int, dict[str, Any]]:
    """Run a verb of `manage.py outbox`; return its exit code and its document."""
    asked: Process = harvesters.run("outbox", *verb, "--json", name="outbox")
    code = asked.exit_code()
    (document,) = asked.events
    return code, document


def test_who_leads_what_blocks_and_how_it_is_let_go(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    harvesters.start(name="first").wait_for("leader_acquired")
    harvesters.start(name="second").wait_for("ready")
    code, found = ask(harvesters, "leader")
    assert (code, found["leader"]) == (0, "first")

    # Its partition does not exist; the records behind it wait.
    (stuck,) = table.insert(topic, "customer-1", partition=99)
    behind = table.insert(topic, "customer-1", count=3)
    eventually(lambda: table.count("attempts > 0"))
    code, found = ask(harvesters, "status")
    assert found["backlog"]["records"] == 4
    (blocked,) = found["blocked"]["rows"]
    assert blocked["id"] == stuck
    assert blocked["kafka_topic"] == topic
    assert "UNKNOWN_PARTITION" in blocked["last_error"]

    code, found = ask(harvesters, "park", str(stuck))
    assert (code, found["parked"]) == (0, 1)
    table.wait_until_empty()
    assert [d.id for d in deliveries(topics.read(topic))] == behind
    code, found = ask(harvesters, "status")
    assert [row["id"] for row in found["parked"]["rows"]] == [stuck]


def test_a_record_that_has_not_failed_is_not_parked(
    harvesters: Harvesters, table: OutboxTable, topic: str
) -> None:
    (waiting,) = table.insert(topic, "key")
    code, found = ask(harvesters, "park", str(waiting))
    assert (code, found["parked"]) == (1, 0)
    assert "not blocked" in found["error"]
    assert table.count() == 1


@pytest.mark.parametrize("mode", modes())
def test_a_dropped_record_no_longer_blocks_its_key(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str, mode: str
) -> None:
    harvesters.start(**MODES[mode]).wait_for("leader_acquired")
    (stuck,) = table.insert(topic, "customer-1", partition=99)
    behind = table.insert(topic, "customer-1", count=3)
    eventually(lambda: table.count("attempts > 0"))
    code, found = ask(harvesters, "skip", str(stuck))
    assert (code, found["skipped"]) == (1, 0)
    assert "say --yes" in found["error"]
    assert table.count() == 4
    code, found = ask(harvesters, "skip", str(stuck), "--yes")
    assert (code, found["skipped"]) == (0, 1)
    table.wait_until_empty()
    assert [d.id for d in deliveries(topics.read(topic))] == behind


@pytest.mark.usefixtures("table")
def test_nobody_leads(harvesters: Harvesters) -> None:
    code, found = ask(harvesters, "leader")
    assert (code, found["leader"]) == (1, None)
    assert "nobody leads" in found["error"]
