"""The simulated table does what the table of the contract tests does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from django_outbox.message.record import Failure, KeyToRead, Record
from tests.fakes.outbox import InMemoryOutbox

from .table import Row, Table

LEADERS = ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(20))
def test_the_simulated_table_agrees_with_the_contract(seed: int) -> None:
    """`tests/contracts` holds the one in memory and Postgres to the same."""
    dice = Random(seed)
    table, reference = Table(), InMemoryOutbox()
    known: list[Record] = []

    def insert() -> None:
        record = reference.insert("t", dice.choice("xyz"), "v")
        known.append(record)
        table.commit([Row(record)])

    def some() -> list[Record]:
        return dice.sample(known, min(len(known), 3))

    def failures() -> list[Failure]:
        return [Failure(record, "no") for record in some()]

    def mark(leader: str) -> None:
        limit = dice.randint(1, 5)
        assert table.mark(leader, limit) == reference.mark(leader, limit=limit)

    def reset(leader: str) -> None:
        ordering_key = ("t", dice.choice("xyz"))
        table.reset(leader, [ordering_key])
        reference.reset(leader, [KeyToRead(ordering_key, 0)])

    def purge(leader: str) -> None:
        records = some()
        ids = [record.id for record in records]
        assert table.purge(leader, ids) == reference.purge(leader, records)

    def fail(leader: str) -> None:
        failed = failures()
        assert table.fail(leader, failed) == reference.fail(leader, failed)

    def park(leader: str) -> None:
        failed = failures()
        assert table.park(leader, failed) == reference.park(leader, failed)

    acts: list[Callable[[str], None]] = [mark, mark, mark, reset, purge, fail, park]
    for _ in range(200):
        insert() if dice.random() < 0.4 else dice.choice(acts)(dice.choice(LEADERS))
        marks = {id: row.leader_id for id, row in sorted(table.rows.items())}
        assert marks == reference.marks()
    assert set(table.parked) == {failure.record.id for failure in reference.parked}
    assert not table.trespasses
