"""The settler settles all rows but those that the table does not release."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from django_outbox.exceptions import DatabaseBusy, DatabaseSlow, DatabaseUnavailable
from django_outbox.message.record import Failure, Record
from django_outbox.relay.settlement import Settled, Settlement
from django_outbox.relay.settler import (
    LAST_PAUSE,
    MAX_CHUNK_ROWS,
    MAX_PARTS,
    Attempt,
    Settler,
)
from tests.fakes.outbox import InMemoryOutbox

LEADER = "11111111-1111-1111-1111-111111111111"
NEXT = "22222222-2222-2222-2222-222222222222"


class Table(InMemoryOutbox):
    """Counts statements, and waits for no lock."""

    def __init__(self) -> None:
        super().__init__()
        self.purges: list[int] = []
        self.lost_after = 10**9
        self.in_time = 10**9
        self.fails_left = 10**9
        self.is_parking_locked = False

    def purge(self, leader_id: str | None, records: Sequence[Record]) -> int:
        self.purges.append(len(records))
        if len(records) > self.in_time:
            raise DatabaseSlow("statement timeout")
        if len(self.purges) > self.lost_after:
            raise DatabaseUnavailable("away")
        return super().purge(leader_id, records)

    def fail(self, leader_id: str, failures: Sequence[Failure]) -> int:
        if len(failures) > self.in_time:
            raise DatabaseSlow("statement timeout")
        if self.fails_left == 0:
            raise DatabaseUnavailable("away")
        self.fails_left -= 1
        return super().fail(leader_id, failures)

    def park(self, leader_id: str, failures: Sequence[Failure]) -> int:
        if self.is_parking_locked:
            raise DatabaseBusy("lock timeout")
        return super().park(leader_id, failures)


class Bench:
    def __init__(self) -> None:
        self.now = 100.0
        self.table = Table()
        self.parked: list[int] = []
        self.settler = Settler(
            outbox=self.table,
            on_parked=lambda _, failure: self.parked.append(failure.record.id),
            clock=lambda: self.now,
        )

    def records(self, count: int) -> list[Record]:
        made = [self.table.insert("t", f"k{n}") for n in range(count)]
        self.table.mark(LEADER, limit=count)
        return made

    def settle(self, settlement: Settlement) -> Settled:
        """Settle what the table releases."""
        attempt = Attempt(settlement)
        assert self.settler.advance(attempt) is None
        return attempt.settled()

    def settle_after_an_outage(self, records: Sequence[Record]) -> Settled:
        """Purge these in two attempts: the table is lost behind the first statement."""
        attempt = Attempt(Settlement(leader_id=LEADER, acknowledged=[*records]))
        self.table.lost_after = 1
        assert self.settler.advance(attempt) is not None
        self.table.lost_after = 10**9
        assert self.settler.advance(attempt) is None
        return attempt.settled()

    def left(self) -> list[int]:
        return [record.id for record in self.table.records()]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_all_rows_but_a_locked_one_are_purged(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    records = bench.records(10)
    bench.table.locked_ids = {4}
    settlement = Settlement(leader_id=LEADER, acknowledged=records)

    outcome = bench.settle(settlement)

    rest = outcome.rest
    assert rest is not None
    assert bench.left() == [4]
    assert outcome.purged == 9
    assert [record.id for record in rest.acknowledged] == [4]
    for _ in range(3):
        rest = bench.settle(rest).rest
        assert rest is not None
    bench.table.locked_ids.clear()
    assert bench.settle(rest).rest is None
    assert bench.left() == []
    assert caplog.messages == [
        "Cannot settle a row, retrying it apart: record 4: another session has "
        "locked it"
    ]
    assert bench.settler.outage.since is None


def test_the_next_settlement_does_not_wait_for_a_lock(bench: Bench) -> None:
    records = bench.records(6)
    bench.table.locked_ids = {1, 5}
    bench.settle(Settlement(leader_id=LEADER, acknowledged=records[:3]))
    before = len(bench.table.purges)

    bench.settle(Settlement(leader_id=LEADER, acknowledged=records[3:]))

    assert bench.table.purges[before:] == [2]
    assert bench.left() == [1, 5]


def test_the_attempts_at_a_rest_are_rarer_and_rarer(bench: Bench) -> None:
    (record,) = bench.records(1)
    bench.table.refused_ids = {1}
    rest = bench.settle(Settlement(leader_id=LEADER, acknowledged=[record])).rest
    pauses = []
    for _ in range(8):
        assert rest is not None
        pauses.append(rest.retry_at - bench.now)
        rest = bench.settle(rest).rest

    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] == LAST_PAUSE


def test_rows_that_a_trigger_refuses_are_found_by_halves(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    records = bench.records(500)
    bench.table.refused_ids = {17, 400}

    rest = bench.settle(Settlement(leader_id=LEADER, acknowledged=records)).rest

    assert rest is not None
    assert bench.left() == [17, 400]
    assert [record.id for record in rest.acknowledged] == [17, 400]
    assert len(bench.table.purges) < 50
    (line,) = caplog.messages
    assert "record 17, 400: a trigger refuses" in line


def test_a_row_that_a_trigger_keeps_silently_is_not_taken_for_purged(
    bench: Bench,
) -> None:
    records = bench.records(5)
    bench.table.kept_ids = {3}
    settlement = Settlement(leader_id=LEADER, acknowledged=records)

    outcome = bench.settle(settlement)

    assert outcome.rest is not None
    assert [record.id for record in outcome.rest.acknowledged] == [3]
    assert outcome.purged == len(outcome.acknowledged) == 4


def test_a_table_that_refuses_everything_takes_a_bounded_number_of_statements(
    bench: Bench,
) -> None:
    records = bench.records(1000)
    bench.table.refused_ids = set(range(1, 1000))
    rest = bench.settle(Settlement(leader_id=LEADER, acknowledged=records)).rest

    assert len(bench.table.purges) <= MAX_PARTS + 2
    tries = 0
    while rest is not None and 1000 in bench.left():
        rest, tries = bench.settle(rest).rest, tries + 1
    assert tries < 20, "the attempts begin with the rows that were not reached"


def test_a_table_that_is_no_longer_there_is_an_outage(bench: Bench) -> None:
    settlement = Settlement(leader_id=LEADER, acknowledged=bench.records(2))
    attempt = Attempt(settlement)
    bench.table.is_down = True

    assert bench.settler.advance(attempt) is not None
    assert bench.settler.outage.since is not None
    bench.table.is_down = False
    assert bench.settler.advance(attempt) is None
    assert attempt.settled().rest is None
    assert bench.left() == []


def test_rows_that_were_not_reached_before_an_outage_are_settled_later(
    bench: Bench,
) -> None:
    records = bench.records(8)
    bench.table.refused_ids = {8}
    bench.table.lost_after = 4
    settlement = Settlement(leader_id=LEADER, acknowledged=records)
    outcome = bench.settle(settlement)
    rest = outcome.rest
    assert rest is not None
    assert len(outcome.acknowledged) + len(rest) == 8
    bench.table.lost_after = 10**9
    bench.table.refused_ids.clear()

    assert bench.settle(rest).rest is None
    assert bench.left() == []


def test_an_outage_between_two_statements_hides_no_row_from_the_count(
    bench: Bench,
) -> None:
    records = bench.records(MAX_CHUNK_ROWS + 20)
    bench.table.locked_ids = {MAX_CHUNK_ROWS + 5}
    outcome = bench.settle_after_an_outage(records)

    assert outcome.purged == len(outcome.acknowledged) == MAX_CHUNK_ROWS + 19
    assert bench.left() == [MAX_CHUNK_ROWS + 5]


def test_a_row_is_left_to_the_rest_once_despite_an_outage(bench: Bench) -> None:
    records = bench.records(10)
    bench.table.locked_ids = {4}
    outcome = bench.settle_after_an_outage(records)

    assert outcome.rest is not None
    assert [record.id for record in outcome.rest.acknowledged] == [4]
    assert outcome.purged == 9


def test_a_server_that_is_too_slow_gets_fewer_rows_at_a_time(bench: Bench) -> None:
    bench.table.in_time = 60
    first = bench.settle(Settlement(leader_id=LEADER, acknowledged=bench.records(800)))
    assert (first.purged, first.rest, bench.left()) == (800, None, [])
    assert bench.table.purges[:3] == [800, 50, 100]

    bench.table.purges.clear()
    bench.table.in_time = 10**9
    bench.settle(Settlement(leader_id=LEADER, acknowledged=bench.records(800)))
    assert sum(bench.table.purges) == 800
    assert len(bench.table.purges) < 6

    bench.table.in_time = 0
    attempt = Attempt(Settlement(leader_id=LEADER, acknowledged=bench.records(3)))
    assert bench.settler.advance(attempt) is not None


def test_a_row_that_cannot_be_parked_yet_is_announced_when_it_is(bench: Bench) -> None:
    failures = [Failure(record, "CODE: poison") for record in bench.records(3)]
    bench.table.locked_ids = {2}
    rest = bench.settle(Settlement(leader_id=LEADER, poisoned=failures)).rest
    assert rest is not None
    assert bench.parked == [1, 3]
    bench.table.locked_ids.clear()

    assert bench.settle(rest).rest is None
    assert bench.parked == [1, 3, 2]


def test_a_failure_that_cannot_be_noted_leaves_no_rest(bench: Bench) -> None:
    failures = [Failure(record, "CODE: not now") for record in bench.records(3)]
    bench.table.locked_ids = {2}

    assert bench.settle(Settlement(leader_id=LEADER, failed=failures)).rest is None
    assert [r.attempts for r in bench.table.records()] == [1, 0, 1]


def test_a_failure_is_one_attempt_while_the_parked_table_is_locked(
    bench: Bench,
) -> None:
    """Of many it would be parked long before its time."""
    failed, poisoned = (Failure(r, "CODE: no") for r in bench.records(2))
    attempt = Attempt(
        Settlement(leader_id=LEADER, failed=[failed], poisoned=[poisoned])
    )
    bench.table.is_parking_locked = True
    for _ in range(5):
        assert bench.settler.advance(attempt) is not None

    bench.table.is_parking_locked = False
    assert bench.settler.advance(attempt) is None
    assert [(r.id, r.attempts) for r in bench.table.records()] == [(1, 1)]
    assert bench.parked == [2]
    assert attempt.settled().failed == [failed]


def test_an_outage_between_two_statements_repeats_no_attempt(bench: Bench) -> None:
    failures = [Failure(record, "CODE: not now") for record in bench.records(100)]
    attempt = Attempt(Settlement(leader_id=LEADER, failed=failures))
    bench.table.in_time, bench.table.fails_left = 60, 1
    assert bench.settler.advance(attempt) is not None
    done = [r.id for r in bench.table.records() if r.attempts]
    assert 0 < len(done) < 100

    bench.table.fails_left = 10**9
    assert bench.settler.advance(attempt) is None
    assert {r.attempts for r in bench.table.records()} == {1}


def test_a_rest_is_purged_whoever_has_marked_its_rows(bench: Bench) -> None:
    records = bench.records(6)
    bench.table.locked_ids = {2, 6}
    settlement = Settlement(leader_id=LEADER, acknowledged=records)
    rest = bench.settle(settlement).rest
    assert rest is not None

    # The first page of the next leader id has one of the two rows.
    assert [r.id for r in bench.table.mark(NEXT, limit=1)] == [2]
    again = bench.settle(rest).rest
    assert again is not None
    bench.table.locked_ids.clear()
    settled = bench.settle(again)
    assert settled.purged == len(settled.acknowledged) == 2
    assert bench.left() == []


@pytest.fixture(autouse=True)
def _level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="django_outbox.relay.settler")
