"""One page at a time: what a reader asks of the table, and what it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

import pytest

from django_outbox.exceptions import DatabaseBusy
from django_outbox.message.record import KeyToRead, Sweep
from django_outbox.relay.ledger.page_reader import KEYS_LIMIT, PageReader
from django_outbox.relay.ledger.page_request import Page, PageRequest
from django_outbox.relay.memory_marks import WRITERS_INTERVAL
from tests.fakes.unmarked import InMemoryUnmarked


class Table(InMemoryUnmarked):
    """Counts the questions who writes."""

    questions = 0

    def writers(self) -> tuple[frozenset[str], bool]:
        self.questions += 1
        return super().writers()


@dataclass
class Bench:
    """A page reader, its table and its clock."""

    now: float = 10.0
    table: Table = field(default_factory=Table)

    def __post_init__(self) -> None:
        self.reader = PageReader(table=self.table, clock=lambda: self.now)

    def page(self, **fields: object) -> Page:
        request = {"run": 1, "limit": 10} | fields
        return self.reader.carry_out(PageRequest(**request))  # type: ignore[arg-type]

    def ids(self, **fields: object) -> list[int]:
        return [record.id for record in self.page(**fields).records]


def test_a_page_is_shown_once() -> None:
    bench = Bench()
    for _ in range(3):
        bench.table.insert("t", "k")

    assert bench.ids(limit=2) == [1, 2]
    assert bench.ids() == [3]
    assert bench.ids() == []


def test_a_new_run_begins_at_the_head() -> None:
    bench = Bench()
    bench.table.insert("t", "k")
    bench.ids()

    assert bench.ids(run=2) == [1]


def test_a_request_without_a_limit_asks_for_the_history_only() -> None:
    bench = Bench()
    bench.table.insert("t", "k")

    page = bench.page(limit=0)

    assert list(page.records) == []
    assert page.history == bench.table.history()
    assert page.retry_at is None


def test_every_page_says_of_which_history_its_rows_are() -> None:
    bench = Bench()
    first = bench.page().history
    bench.table.promote(bench.table.standby())

    assert first
    assert bench.page().history not in ("", first)


def test_nobody_asks_who_writes_while_there_is_no_gap() -> None:
    bench = Bench()
    bench.table.insert("t", "k")
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


def test_a_sweep_finds_what_is_left_behind_but_what_is_known_or_passed() -> None:
    bench = Bench()
    for key in ("a", "b", "c"):
        bench.table.insert("t", key)
    bench.page()
    bench.table.insert("t", "d", record_id=-5)

    page = bench.page(sweep=Sweep({1}, [("t", "b")]))

    assert [record.id for record in page.records] == [-5, 3]


def test_a_sweep_goes_no_further_than_the_position() -> None:
    bench = Bench()
    bench.table.insert("t", "k")

    assert bench.ids(sweep=Sweep((), ())) == []
    assert bench.ids() == [1]


def test_held_lanes_are_read_up_to_the_position_before_the_rest() -> None:
    bench = Bench()
    for key in ("a", "b", "a"):
        bench.table.insert("t", key)
    bench.page(limit=2)

    page = bench.page(keys=[KeyToRead(("t", "a"), 1)])

    assert [record.id for record in page.of_keys] == [1]
    assert [record.id for record in page.records] == [3]


def test_a_page_of_blocked_keys_without_rows_came_to_their_end() -> None:
    bench = Bench()
    bench.table.insert("t", "a")
    bench.page()

    page = bench.page(keys=[KeyToRead(("t", "b"), 1)])

    assert list(page.of_keys) == []


def test_a_page_of_blocked_keys_says_how_far_it_came() -> None:
    bench = Bench()
    for _ in range(KEYS_LIMIT + 5):
        bench.table.insert("t", "a")
    bench.page(limit=KEYS_LIMIT + 5)

    page = bench.page(keys=[KeyToRead(("t", "a"), 1)], limit=0)

    assert len(page.of_keys) == KEYS_LIMIT
    assert page.of_keys[-1].id == KEYS_LIMIT


def test_a_request_that_waits_for_a_lock_forgets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def page(*_: object, **__: object) -> NoReturn:
        raise DatabaseBusy

    bench = Bench()
    bench.table.insert("t", "k")
    bench.page()
    with monkeypatch.context() as locked:
        locked.setattr(bench.table, "page", page)
        found = bench.page()
    assert found.retry_at is not None
    assert bench.reader.outage.lasts(bench.now + 30.0) == 0.0

    bench.table.insert("t", "k")
    assert bench.ids() == [2]


def test_a_failure_says_when_to_try_again_and_forgets_what_was_shown() -> None:
    bench = Bench()
    bench.table.insert("t", "k")
    bench.page()
    bench.table.is_down = True
    page = bench.page()
    assert page.retry_at is not None
    assert page.retry_at > bench.now
    assert bench.reader.outage.lasts(bench.now + 3.0) == 3.0

    bench.table.is_down = False

    assert bench.ids() == [1]
    assert bench.reader.outage.lasts(bench.now + 9.0) == 0.0
