"""One page at a time: what a reader asks of the table, and what it remembers."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_outbox.exceptions import DatabaseBusy, DatabaseSlow
from django_outbox.message.pauses import Pauses
from django_outbox.message.record import KeyToRead, OrderingKey, Sweep
from django_outbox.relay.lease import Trust
from django_outbox.relay.memory_marks import WRITERS_INTERVAL, MemoryMarks
from django_outbox.relay.page_reader import PageReader
from django_outbox.relay.page_request import Page, PageRequest
from tests.fakes.unmarked import InMemoryUnmarked

from .leading import Leadership, Term


class Table(InMemoryUnmarked):
    """Counts the questions who writes; its pages may wait for a lock in vain."""

    questions = 0
    is_locked = is_slow = is_stalled = False

    def pauses(self) -> Pauses:
        if self.is_stalled:
            raise DatabaseSlow
        return super().pauses()

    def sweep(self, *arguments: Any, **named: Any) -> Any:
        if self.is_slow:
            raise DatabaseSlow
        return super().sweep(*arguments, **named)

    def writers(self) -> tuple[frozenset[str], bool]:
        self.questions += 1
        return super().writers()

    def page(self, *arguments: Any, **named: Any) -> Any:
        if self.is_locked:
            raise DatabaseBusy
        return super().page(*arguments, **named)


class Bench:
    """A page reader with marks in memory, its table and its clock."""

    def __init__(self, *keys: str) -> None:
        self.now = 10.0
        self.leadership = Leadership()
        self.table = Table()
        for key in keys:
            self.table.insert("t", key)
        marks = MemoryMarks(
            self.table, clock=lambda: self.now, timeline=self.table.database_timeline
        )
        is_trusted = Trust(self.leadership, lambda: self.now)
        self.reader = PageReader(marks, is_trusted=is_trusted, clock=lambda: self.now)

    def page(
        self,
        *,
        run: int = 1,
        limit: int = 10,
        keys: list[KeyToRead] | None = None,
        looks: bool = False,
        sweep: Sweep | None = None,
    ) -> Page:
        request = PageRequest(
            run=run,
            leader_id="id-1",
            limit=limit,
            keys=keys or (),
            looks_for_pauses=looks,
            sweep=sweep,
        )
        return self.reader.carry_out(request)

    def ids(self, **fields: Any) -> list[int]:
        return [record.id for record in self.page(**fields).records]


def ids_of(page: Page) -> list[int]:
    return [record.id for record in page.records]


def from_id(low: int, key: str = "a") -> list[KeyToRead]:
    ordering_key: OrderingKey = ("t", key)
    return [KeyToRead(ordering_key, low)]


def test_a_page_is_shown_once() -> None:
    bench = Bench("k", "k", "k")

    assert bench.ids(limit=2) == [1, 2]
    assert bench.ids() == [3]
    assert bench.ids() == []


def test_a_new_run_begins_at_the_head() -> None:
    bench = Bench("k")
    bench.ids()

    assert bench.ids(run=2) == [1]


def test_a_request_without_keys_and_limit_only_asks_for_the_timeline() -> None:
    bench = Bench("k")

    page = bench.page(limit=0)

    assert list(page.records) == []
    assert page.timeline == bench.table.database_timeline()
    assert page.retry_at is None


# What is paused.


def test_a_new_run_reads_what_is_paused_and_others_when_they_are_asked_to() -> None:
    bench = Bench("k")
    bench.table.paused = [("t", None)]

    page = bench.page()
    assert (ids_of(page), page.pauses) == ([1], Pauses.of([("t", None)]))
    assert bench.page().pauses is None
    assert bench.page(looks=True).pauses == page.pauses


def test_a_look_alone_reads_no_rows_and_asks_for_no_timeline() -> None:
    """Or a failover between two pages would go unnoticed."""
    bench = Bench("k")
    bench.page()
    bench.table.promote(bench.table.standby())

    page = bench.page(limit=0, looks=True)
    assert (ids_of(page), page.timeline) == ([], "")
    assert bench.page().is_uncertain


def test_what_is_paused_is_known_though_the_page_fails() -> None:
    bench = Bench("k")
    bench.table.is_locked = True
    bench.table.paused = [("t", None)]

    page = bench.page()
    assert page.retry_at is not None
    assert page.pauses == Pauses.of([("t", None)])


# Trust.


def test_nothing_is_read_for_a_leader_whose_lease_is_over() -> None:
    bench = Bench("k")
    bench.leadership.term = Term(trusted_until=bench.now)

    page = bench.page()

    assert (list(page.records), page.retry_at) == ([], None)
    bench.leadership.term = Term()
    assert bench.ids() == [1], "it does not count as shown"


def test_keys_that_were_not_shown_again_for_that_reason_count_as_lost() -> None:
    """The lease may be extended: then only a new leader id finds their rows."""
    bench = Bench("a")
    bench.ids()
    bench.leadership.term = Term(trusted_until=bench.now)

    page = bench.page(keys=from_id(1))

    assert page.is_uncertain
    assert page.retry_at == bench.now


# Blocked keys.


def test_rows_of_a_blocked_key_are_shown_again_with_the_next_rows() -> None:
    bench = Bench("a", "b", "a", "c")
    assert bench.ids(limit=3) == [1, 2, 3]

    assert bench.ids(keys=from_id(1)) == [1, 3, 4]
    assert bench.ids() == []


def test_rows_of_a_blocked_key_are_shown_from_an_id_on() -> None:
    bench = Bench("a", "a", "a")
    bench.ids()

    assert bench.ids(keys=from_id(2)) == [2, 3]


def test_many_rows_of_a_blocked_key_come_page_by_page() -> None:
    bench = Bench(*("a" for _ in range(5)), "b")
    bench.ids()

    assert bench.ids(keys=from_id(1), limit=2) == [1, 2]
    assert bench.ids(limit=2) == [3, 4]
    assert bench.ids(limit=2) == [5]
    assert bench.ids(limit=2) == []


def test_a_blocked_key_may_be_shown_later_than_it_was_asked_for() -> None:
    """There may be no room for a page."""
    bench = Bench("a", "b")
    bench.ids()

    assert bench.ids(keys=from_id(1), limit=0) == []
    assert bench.ids() == [1]


def test_a_blocked_key_without_rows_shows_nothing() -> None:
    bench = Bench("a")
    bench.ids()

    assert bench.ids(keys=from_id(1, "b")) == []


def test_a_late_commit_of_a_blocked_key_is_shown_once() -> None:
    bench = Bench()
    writer = bench.table.begin()
    writer.insert("t", "a")
    bench.table.insert("t", "a")
    assert bench.ids() == [2]
    writer.commit()

    assert bench.ids(keys=from_id(1)) == [1, 2]
    assert bench.ids() == []


# Gaps.


def test_nobody_asks_who_writes_while_there_is_no_gap() -> None:
    bench = Bench("k")
    bench.page()

    assert bench.table.questions == 0


def test_who_writes_is_asked_at_intervals_while_there_is_a_gap() -> None:
    bench = Bench()
    writer = bench.table.begin()
    writer.insert("t", "k")
    bench.table.insert("t", "k")
    for _ in range(3):
        bench.page()
    assert bench.table.questions == 1

    bench.now += WRITERS_INTERVAL
    bench.page()

    assert bench.table.questions == 2


def test_a_late_commit_is_found_with_the_next_page() -> None:
    bench = Bench()
    writer = bench.table.begin()
    writer.insert("t", "k")
    bench.table.insert("t", "other")
    assert bench.ids() == [2]
    writer.commit()
    bench.table.insert("t", "k")

    assert bench.ids() == [1, 3]


# Sweeps.


def test_a_sweep_finds_what_is_left_behind_but_what_is_known_or_passed() -> None:
    bench = Bench("a", "b", "c")
    bench.page()
    bench.table.insert("t", "d", record_id=-5)

    assert bench.ids(sweep=Sweep({1}, [("t", "b")])) == [-5, 3]


def test_a_sweep_goes_no_further_than_the_position() -> None:
    bench = Bench("k")

    assert bench.ids(sweep=Sweep((), ())) == []
    assert bench.ids() == [1]


def test_a_sweep_leaves_keys_that_are_shown_again_to_the_next_page() -> None:
    bench = Bench("a", "b")
    bench.ids()
    bench.ids(keys=from_id(1), limit=0)

    assert bench.ids(sweep=Sweep({2}, ())) == []
    assert bench.ids() == [1]


# Failures.


def test_a_page_that_waits_for_a_lock_forgets_nothing() -> None:
    bench = Bench("k")
    bench.page()
    bench.table.is_locked = True

    page = bench.page()

    assert page.retry_at is not None
    assert not page.is_uncertain
    assert bench.reader.outage.lasts(bench.now + 30.0) == 0.0
    bench.table.is_locked = False
    bench.table.insert("t", "k")
    assert bench.ids() == [2]


def test_a_repair_scan_that_does_not_end_in_time_forgets_nothing() -> None:
    """It reads all that is paused, and all that was deleted."""
    bench = Bench("k", "k")
    assert bench.ids() == [1, 2]
    bench.table.is_slow = True

    page = bench.page(sweep=Sweep((), ()))

    assert (page.retry_at, page.is_uncertain, list(page.records)) == (None, False, [])
    assert bench.reader.outage.lasts(bench.now + 30.0) == 0.0
    bench.table.insert("t", "k")
    assert bench.ids() == [3]


def test_a_stall_before_a_repair_scan_leaves_keys_blocked() -> None:
    bench = Bench("a", "a")
    bench.ids()
    bench.table.is_stalled = True

    page = bench.page(keys=from_id(1), looks=True, sweep=Sweep((), ()))

    assert page.retry_at is not None
    assert page.is_uncertain


def test_keys_whose_page_waits_for_a_lock_are_shown_with_a_later_one() -> None:
    bench = Bench("a")
    bench.page()
    bench.table.is_locked = True
    bench.page(keys=from_id(1))
    bench.table.is_locked = False

    assert bench.ids() == [1]


def test_a_failure_says_when_to_try_again_and_that_rows_may_be_missed() -> None:
    bench = Bench("k")
    bench.page()
    bench.table.is_down = True

    page = bench.page()

    assert page.retry_at is not None
    assert page.retry_at > bench.now
    assert page.is_uncertain
    assert bench.reader.outage.lasts(bench.now + 3.0) == 3.0
    bench.table.is_down = False
    assert bench.ids(run=2) == [1]
    assert bench.reader.outage.lasts(bench.now + 9.0) == 0.0


def test_a_page_of_another_timeline_than_those_before_is_void(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ids may be given again, behind the position."""
    caplog.set_level(logging.WARNING)
    bench = Bench("k")
    standby = bench.table.standby()
    bench.table.insert("t", "k")
    assert bench.ids() == [1, 2]
    bench.table.promote(standby)
    bench.table.insert("t", "again")

    page = bench.page()

    assert (list(page.records), page.is_uncertain) == ([], True)
    assert [vars(entry)["action"] for entry in caplog.records][:1] == [
        "timeline_changed"
    ]
    assert bench.ids(run=2) == [1, 2]


def test_rows_before_a_timeline_was_asked_for_are_of_that_one() -> None:
    """A ledger of it decides what of them is in the log."""
    bench = Bench("k")
    bench.page(limit=0)
    bench.table.promote(bench.table.standby())

    assert bench.page().is_uncertain
