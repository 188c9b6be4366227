"""
Other programs on the same table: any INSERT, and goharvest's own statements.

The statements below are what goharvest's reaper says to the table, in our
words; it runs while no harvester of ours does.
"""

from __future__ import annotations

from uuid import uuid4

from ..services import Topics
from .auditing import deliveries
from .harvesters import Harvesters
from .tables import OutboxTable

CONTRACT = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value,
    kafka_header_keys, kafka_header_values)
VALUES (now(), $1, $2, $3, $4, $5)
"""

MARK = """
UPDATE outbox SET leader_id = %(leader_id)s
WHERE id IN (
    SELECT id FROM outbox
    WHERE leader_id IS NULL OR leader_id <> %(leader_id)s
    ORDER BY id LIMIT %(limit)s
)
RETURNING id, kafka_topic, kafka_key, kafka_value, kafka_header_keys,
    kafka_header_values, leader_id
"""


def test_the_contracts_insert_works_from_any_language(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    with table.connect() as connection:
        types = "text, text, text, text[], text[]"
        connection.execute(f"PREPARE pump ({types}) AS {CONTRACT}")
        connection.execute(
            f"EXECUTE pump ('{topic}', 'key', 'value', '{{a,b}}', '{{1,2}}')"
        )
        connection.execute(f"EXECUTE pump ('{topic}', 'key', NULL, '{{}}', '{{}}')")
    harvesters.start()
    table.wait_until_empty()

    first, second = deliveries(topics.read(topic))
    assert (first.key, first.value, first.headers[:2]) == (
        *("key", b"value"),
        [("a", "1"), ("b", "2")],
    )
    assert (second.key, second.value) == ("key", None)


def test_a_table_that_goharvest_has_worked_on_is_taken_over(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    ids = table.insert(topic, "key", count=10)
    first = harvesters.start()
    first.wait_for("leader_acquired")
    table.wait_until_empty()
    first.terminate()
    assert first.exit_code() == 0

    ids += table.insert(topic, "key", count=10)
    leader_id = str(uuid4())
    marked = table.execute(MARK, {"leader_id": leader_id, "limit": 6})
    assert sorted(row[0] for row in marked) == ids[10:16]
    assert {str(row[-1]) for row in marked} == {leader_id}
    purged, reset = ids[10], ids[11]
    table.execute(f"DELETE FROM {{outbox}} WHERE id = {purged}")
    table.execute(f"UPDATE {{outbox}} SET leader_id = NULL WHERE id = {reset}")
    again = table.execute(MARK, {"leader_id": leader_id, "limit": 1})
    assert [row[0] for row in again] == [reset]

    harvesters.start()
    table.wait_until_empty()
    sent = [delivery.id for delivery in deliveries(topics.read(topic))]
    assert sent == [id_ for id_ in ids if id_ != purged]


def test_rows_that_a_dead_leader_has_marked_are_sent_in_order(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    ids = table.insert(topic, "key", count=20)
    table.execute("UPDATE {outbox} SET leader_id = gen_random_uuid() WHERE id % 3 = 0")
    harvesters.start()
    table.wait_until_empty()
    assert [d.id for d in deliveries(topics.read(topic))] == ids
