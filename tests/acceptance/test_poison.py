"""Records that Kafka does not take, and the two policies for them."""

from __future__ import annotations

import pytest

from ..services import Topics
from ..waiting import eventually
from .auditing import deliveries
from .harvesters import Harvesters
from .tables import OutboxTable

TOO_LARGE = "x" * 5000


@pytest.fixture(params=["at-least-once", "exactly-once"])
def environment(
    environment: dict[str, str], request: pytest.FixtureRequest
) -> dict[str, str]:
    """Each delivery mode, with the same policies."""
    return {**environment, "OUTBOX_DELIVERY": request.param}


@pytest.fixture
def narrow(topics: Topics) -> str:
    """A topic that takes messages of up to 2,000 bytes."""
    return topics.create(config={"max.message.bytes": "2000"})


def insert_poison(table: OutboxTable, topic: str) -> tuple[list[int], list[int]]:
    """Ids of a key with a poison record as its second, and of other keys."""
    sick = [
        *table.insert(topic, "sick"),
        *table.insert(topic, "sick", TOO_LARGE),
        *table.insert(topic, "sick", count=3),
    ]
    well = [table.insert(topic, f"well-{n % 10}")[0] for n in range(100)]
    return sick, well


def test_a_blocked_key_holds_its_own_records_only_and_its_order(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    narrow: str,
) -> None:
    sick, well = insert_poison(table, narrow)
    leader = harvesters.start()
    eventually(lambda: table.count() == 4 and table.count("attempts > 1"))

    left = table.execute("SELECT id, attempts, last_error FROM {outbox} ORDER BY id")
    assert [row[0] for row in left] == sick[1:]
    assert [row[1] > 0 for row in left] == [True, False, False, False]
    assert left[0][2].startswith("MSG_SIZE_TOO_LARGE: ")
    sent = [d.id for d in deliveries(topics.read(narrow))]
    assert sorted(sent) == sorted([sick[0], *well])

    topics.configure(narrow, "max.message.bytes", "100000")
    table.wait_until_empty()
    sent = [d.id for d in deliveries(topics.read(narrow))]
    assert [id_ for id_ in sent if id_ in sick] == sick
    assert len(sent) == len(sick) + len(well)
    assert leader.all("leader_refreshed", "leader_fenced") == []


def test_a_parked_record_lets_its_followers_pass(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, narrow: str
) -> None:
    sick, well = insert_poison(table, narrow)
    harvesters.environment = {
        **harvesters.environment,
        "OUTBOX_POISON_POLICY": "park",
        "OUTBOX_PARK_AFTER": "2",
    }
    leader = harvesters.start()
    parked = leader.wait_for("record_parked")
    table.wait_until_empty()

    rows = table.execute(
        "SELECT id, message_id::text, kafka_value, attempts, last_error FROM {parked}"
    )
    assert len(rows) == 1
    id_, message_id, value, attempts, error = rows[0]
    assert (id_, value, attempts) == (sick[1], TOO_LARGE, 2)
    assert (parked["record_id"], parked["message_id"]) == (id_, message_id)
    assert (parked["topic"], parked["attempts"]) == (narrow, 2)
    assert parked["error"] == error
    assert error.startswith("MSG_SIZE_TOO_LARGE: ")
    sent = [d.id for d in deliveries(topics.read(narrow))]
    assert [n for n in sent if n in sick] == [sick[0], *sick[2:]]
    assert sorted(n for n in sent if n not in sick) == well


def test_a_topic_may_park_while_all_others_block(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    parking = topics.create()
    (parked,) = table.insert(parking, "sick", partition=99)
    (blocked,) = table.insert(topic, "sick", partition=99)
    table.insert(parking, "sick")
    harvesters.start(
        OUTBOX_TOPIC_POISON_POLICY=f"{parking}=park", OUTBOX_PARK_AFTER="2"
    )
    eventually(
        lambda: (
            table.execute("SELECT id FROM {outbox} WHERE attempts > 2") == [(blocked,)]
            and table.count() == 1
        )
    )

    assert table.execute("SELECT id FROM {parked}") == [(parked,)]
    assert len(topics.read(parking)) == 1


def test_a_partition_that_does_not_exist_blocks_its_key_until_sql_mends_it(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    harvesters.start()
    sick = [
        *table.insert(topic, "sick", partition=99),
        *table.insert(topic, "sick"),
    ]
    table.insert(topic, "well", count=5)
    eventually(lambda: table.count() == 2 and table.count("attempts > 0"))
    ((error,),) = table.execute("SELECT last_error FROM {outbox} WHERE attempts > 0")
    table.execute("UPDATE {outbox} SET kafka_partition = NULL")
    table.wait_until_empty()

    assert error.startswith("_UNKNOWN_PARTITION: ")
    sent = [d.id for d in deliveries(topics.read(topic)) if d.key == "sick"]
    assert sent == sick


@pytest.mark.parametrize("policy", ["block-key", "park"])
def test_topics_that_no_record_may_name(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str, policy: str
) -> None:
    # goharvest's own table, for one, has no such constraint.
    table.execute("ALTER TABLE {outbox} DROP CONSTRAINT outbox_topic_name")
    leader_topic = harvesters.environment["OUTBOX_LEADER_TOPIC"]
    bad = [
        table.insert(name, "sick")[0]
        for name in ("no topic!", "__consumer_offsets", leader_topic)
    ]
    table.insert(topic, "well", count=5)
    leader = harvesters.start(OUTBOX_POISON_POLICY=policy, OUTBOX_PARK_AFTER="1")
    if policy == "park":
        table.wait_until_empty()
        parked = table.execute("SELECT id FROM {parked} ORDER BY id")
        assert [row[0] for row in parked] == bad
    else:
        eventually(lambda: table.count("attempts > 0") == 3)
        eventually(lambda: table.count() == 3)
        table.execute("DELETE FROM {outbox} WHERE attempts > 0")
        table.insert(topic, "sick", count=1)
        table.wait_until_empty()
    assert len(topics.read(topic)) == 5 + (policy != "park")
    assert leader.all("leader_fenced") == []
