"""Harvesters that nobody disturbs, under concurrent writers."""

from __future__ import annotations

from ..services import Topics
from ..waiting import eventually
from .auditing import Audited, deliveries
from .harvesters import Harvesters
from .tables import OutboxTable
from .writing import Writers


def test_nothing_is_lost_repeated_or_out_of_order(
    harvesters: Harvesters, table: OutboxTable, audited: Audited, topic: str
) -> None:
    first, *standbys = harvesters.start_ready(3)
    with Writers(table, topic) as writers:
        writers.burst(2000)
        writers.wait_for(1000)
    table.wait_until_empty()

    found = audited(writers)
    assert writers.ledger.rolled_back
    assert found.broken == {}
    assert found.duplicates == 0
    assert len(harvesters.terms()) == 1
    assert [h.all("leader_acquired") for h in standbys] == [[], []]
    assert first.all("leader_refreshed") == []


def test_a_row_that_commits_behind_marked_rows_is_sent(
    harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> None:
    harvesters.start_ready(1)
    with table.connect() as late:
        late.execute("BEGIN")
        (late_id,) = late.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value)"
            " VALUES (%s, 'late', 'late') RETURNING id",
            [topic],
        ).fetchone() or (0,)
        # Its partition does not exist: it stays in the table, marked.
        table.insert(topic, "stays", partition=99)
        early = table.insert(topic, "early", count=5)
        eventually(lambda: table.count() == table.count("attempts > 0"))
        late.execute("COMMIT")
    eventually(lambda: table.count() == 1)

    assert late_id < min(early)
    sent = [delivery.id for delivery in deliveries(topics.read(topic))]
    assert sorted(sent) == [late_id, *early]
