"""What a harvester examines when it starts: it warns, or refuses to start."""

from __future__ import annotations

import json

from ..processes import Process
from .harvesters import Harvesters
from .tables import OutboxTable


def warned_of(harvester: Process) -> list[str]:
    """Return the names of the findings in a harvester's log."""
    entries = [json.loads(line) for line in harvester.log]
    return [entry["finding"] for entry in entries if "finding" in entry]


def test_a_start_warns_once_of_each_finding(
    harvesters: Harvesters, table: OutboxTable, topic: str
) -> None:
    harvester = harvesters.start()
    harvester.wait_for("leader_acquired")
    line = json.loads(harvester.wait_for_log("Doctor found min-insync-replicas"))
    assert line["level"] == "WARNING"
    assert line["action"] == "doctor"
    table.insert(topic, "key")
    table.wait_until_empty()
    harvester.terminate()
    assert harvester.exit_code() == 0
    found = warned_of(harvester)
    assert len(found) == len({*found})
    assert "replication-factor" in found


def test_a_start_without_kafka_is_not_a_fault(harvesters: Harvesters) -> None:
    harvester = harvesters.start(KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    harvester.wait_for_log("unavailable")
    harvester.terminate()
    assert harvester.exit_code() == 0
    assert "Doctor failed" not in "".join(harvester.log)


def test_topics_that_are_not_durable_are_refused(
    harvesters: Harvesters, table: OutboxTable, topic: str
) -> None:
    table.insert(topic, "key")
    names = {"OUTBOX_LEADER_TOPIC": f"z-{topic}"}
    required = harvesters.start(OUTBOX_REQUIRE_DURABLE_TOPICS="1", **names)
    assert required.exit_code() == 2
    (line,) = required.log
    assert (
        f"REQUIRE_DURABLE_TOPICS: the topic {topic} is not durable: 1 replica, 3"
        " needed. Cure: run 3 brokers (now 1), then kafka-reassign-partitions.sh"
    ) in line
    assert required.events == []

    # Before the leader topic is created, too.
    own = harvesters.start(
        OUTBOX_REQUIRE_DURABLE_TOPICS="1", OUTBOX_LEADER_TOPIC=f"a-{topic}"
    )
    assert own.exit_code() == 2
    (line,) = own.log
    assert line.endswith(
        f"the topic a-{topic} is not durable: 1 replica, 3 needed (once it is created)."
        " Cure: set TOPIC_REPLICATION_FACTOR = 3"
    )


def test_without_kafka_a_start_that_needs_durable_topics_waits(
    harvesters: Harvesters,
) -> None:
    harvester = harvesters.start(
        OUTBOX_REQUIRE_DURABLE_TOPICS="1", KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1"
    )
    harvester.wait_for_log("unavailable")
    assert harvester.is_running
    harvester.terminate()
    assert harvester.exit_code() == 0
    assert [event["event"] for event in harvester.events] == ["stopped"]
