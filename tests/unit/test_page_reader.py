"""One look at a time: what a finder asks of the table, and what it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

import pytest

from django_outbox.exceptions import DatabaseBusy
from django_outbox.message.record import Held, Sweep
from django_outbox.relay.ledger.page_reader import HELD_LIMIT, Finder
from django_outbox.relay.ledger.ports import Look
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
    """A finder, its table and its clock."""

    now: float = 10.0
    table: Table = field(default_factory=Table)

    def __post_init__(self) -> None:
        self.finder = Finder(table=self.table, clock=lambda: self.now)

    def look(self, **fields: object) -> Look:
        look = Look(**({"run": 1, "limit": 10} | fields))  # type: ignore[arg-type]
        self.finder.carry_out(look)
        return look

    def ids(self, **fields: object) -> list[int]:
        return [record.id for record in self.look(**fields).records]


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


def test_a_look_without_a_limit_asks_for_the_history_only() -> None:
    bench = Bench()
    bench.table.insert("t", "k")

    look = bench.look(limit=0)

    assert look.records == []
    assert look.history == bench.table.history()
    assert look.retry_at is None


def test_every_look_says_of_which_history_its_rows_are() -> None:
    bench = Bench()
    first = bench.look().history
    bench.table.promote(bench.table.standby())

    assert first
    assert bench.look().history not in ("", first)


def test_nobody_asks_who_writes_while_there_is_no_gap() -> None:
    bench = Bench()
    bench.table.insert("t", "k")
    bench.look()

    assert bench.table.questions == 0


def test_who_writes_is_asked_at_intervals_while_there_is_a_gap() -> None:
    bench = Bench()
    writer = bench.table.begin()
    writer.insert("t", "k")
    bench.table.insert("t", "k")
    for _ in range(3):
        bench.look()
    assert bench.table.questions == 1

    bench.now += WRITERS_INTERVAL
    bench.look()

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
    bench.look()
    bench.table.insert("t", "d", record_id=-5)

    look = bench.look(sweep=Sweep({1}, [("t", "b")]))

    assert [record.id for record in look.records] == [-5, 3]


def test_a_sweep_goes_no_further_than_the_position() -> None:
    bench = Bench()
    bench.table.insert("t", "k")

    assert bench.ids(sweep=Sweep((), ())) == []
    assert bench.ids() == [1]


def test_held_lanes_are_read_up_to_the_position_before_the_rest() -> None:
    bench = Bench()
    for key in ("a", "b", "a"):
        bench.table.insert("t", key)
    bench.look(limit=2)

    look = bench.look(held=[Held(("t", "a"), 1)])

    assert [record.id for record in look.found] == [1]
    assert [record.id for record in look.records] == [3]


def test_a_look_at_held_lanes_that_finds_none_came_to_their_end() -> None:
    bench = Bench()
    bench.table.insert("t", "a")
    bench.look()

    look = bench.look(held=[Held(("t", "b"), 1)])

    assert look.found == []


def test_a_look_at_held_lanes_says_how_far_it_came() -> None:
    bench = Bench()
    for _ in range(HELD_LIMIT + 5):
        bench.table.insert("t", "a")
    bench.look(limit=HELD_LIMIT + 5)

    look = bench.look(held=[Held(("t", "a"), 1)], limit=0)

    assert len(look.found) == HELD_LIMIT
    assert look.found[-1].id == HELD_LIMIT


def test_a_look_that_waits_for_a_lock_forgets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def page(*_: object, **__: object) -> NoReturn:
        raise DatabaseBusy

    bench = Bench()
    bench.table.insert("t", "k")
    bench.look()
    with monkeypatch.context() as locked:
        locked.setattr(bench.table, "page", page)
        look = bench.look()
    assert look.retry_at is not None
    assert bench.finder.outage.lasts(bench.now + 30.0) == 0.0

    bench.table.insert("t", "k")
    assert bench.ids() == [2]


def test_a_look_that_fails_says_when_to_try_again_and_forgets_what_was_shown() -> None:
    bench = Bench()
    bench.table.insert("t", "k")
    bench.look()
    bench.table.is_down = True
    look = bench.look()
    assert look.retry_at is not None
    assert look.retry_at > bench.now
    assert bench.finder.outage.lasts(bench.now + 3.0) == 3.0

    bench.table.is_down = False

    assert bench.ids() == [1]
    assert bench.finder.outage.lasts(bench.now + 9.0) == 0.0
