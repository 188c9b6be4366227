"""Marks in memory, on the unmarked table in memory and on the one in Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_outbox.exceptions import DatabaseUnavailable
from django_outbox.message.record import KeyToRead, Sweep
from django_outbox.relay.memory_marks import MemoryMarks

from .unmarked import MemoryUnmarked, PostgresUnmarked

ME = "11111111-1111-4111-8111-111111111111"

Unmarked = MemoryUnmarked | PostgresUnmarked


@pytest.fixture(
    params=[
        "memory",
        pytest.param("postgres", marks=pytest.mark.django_db(transaction=True)),
    ]
)
def table(request: pytest.FixtureRequest) -> Iterator[Unmarked]:
    """An empty table of each kind."""
    table: Unmarked
    if request.param == "memory":
        table = MemoryUnmarked()
    else:
        table = PostgresUnmarked(request.getfixturevalue("database_url"))
    yield table
    table.close()


class Marks:
    """The marks of one process, and its clock."""

    def __init__(self, table: Unmarked) -> None:
        self.now = 10.0
        adapter = table.open()
        self._marks = MemoryMarks(
            adapter, clock=lambda: self.now, timeline=adapter.database_timeline
        )
        self.begin = self._marks.begin
        self.reset = self._marks.reset
        self.timeline = self._marks.timeline

    def ids(self, *, limit: int = 10, sweep: Sweep | None = None) -> list[int]:
        """Mark; a second later than the last time, so that writers are asked for."""
        self.now += 1.0
        records = self._marks.mark(ME, limit=limit, sweep=sweep)
        return [record.id for record in records]


def test_a_row_is_marked_once_from_the_head_in_id_order(table: Unmarked) -> None:
    a, b, c = (table.insert(key) for key in "xyx")
    marks = Marks(table)

    assert marks.ids(limit=2) == [a, b]
    assert marks.ids(limit=2) == [c]
    assert marks.ids() == []


def test_what_begins_again_marks_all_again(table: Unmarked) -> None:
    a, b = table.insert("x"), table.insert("y")
    marks = Marks(table)
    marks.ids()
    marks.reset(ME, [KeyToRead(("t", "x"), a)])

    marks.begin()

    assert marks.ids() == [a, b]
    assert marks.ids() == []


def test_the_timeline_stays_the_same_when_marks_begin_again(table: Unmarked) -> None:
    marks = Marks(table)
    timeline = marks.timeline()
    marks.begin()

    assert timeline
    assert marks.timeline() == timeline


def test_a_row_that_commits_behind_marked_ones_is_found(table: Unmarked) -> None:
    writer = table.begin()
    late = writer.insert()
    early = table.insert()
    marks = Marks(table)
    assert marks.ids() == [early]
    assert marks.ids() == []
    writer.commit()

    assert late < early
    assert marks.ids() == [late]
    assert marks.ids() == []


def test_a_reset_lane_is_marked_again_before_what_is_new(table: Unmarked) -> None:
    a, b, c = (table.insert(key) for key in "xyx")
    marks = Marks(table)
    marks.ids()
    d = table.insert("x")

    marks.reset(ME, [KeyToRead(("t", "x"), a)])

    assert marks.ids() == [a, c, d]
    assert marks.ids() == []
    assert b not in (a, c, d)


def test_a_sweep_leaves_a_reset_lane_to_the_next_page(table: Unmarked) -> None:
    """Found twice, its rows would look as if another leader had marked them."""
    a, b = table.insert("x"), table.insert("y")
    marks = Marks(table)
    assert marks.ids() == [a, b]

    marks.reset(ME, [KeyToRead(("t", "x"), a)])
    assert marks.ids(sweep=Sweep(frozenset([b]), ())) == []

    assert marks.ids() == [a]


def test_a_reset_lane_is_marked_page_by_page(table: Unmarked) -> None:
    a, _, c, _, e = (table.insert(key) for key in "xyxyx")
    marks = Marks(table)
    marks.ids()
    f = table.insert("x")

    marks.reset(ME, [KeyToRead(("t", "x"), a)])

    assert marks.ids(limit=2) == [a, c]
    assert marks.ids(limit=2) == [e, f]
    assert marks.ids() == []


def test_a_late_row_of_a_reset_lane_is_marked_once(table: Unmarked) -> None:
    first = table.insert("x")
    writer = table.begin()
    late = writer.insert("x")
    last = table.insert("x")
    marks = Marks(table)
    marks.ids()
    writer.commit()

    marks.reset(ME, [KeyToRead(("t", "x"), first)])

    assert marks.ids() == [first, late, last]
    assert marks.ids() == []


def test_a_sweep_finds_what_was_passed_and_not_what_is_known(table: Unmarked) -> None:
    a, b = table.insert("x"), table.insert("y")
    marks = Marks(table)
    marks.ids()
    table.insert_by_hand(-3, "z")
    assert marks.ids() == []

    assert marks.ids(sweep=Sweep({a}, [("t", "y")])) == [-3]
    assert marks.ids(sweep=Sweep({a, -3}, ())) == [b]


def test_a_sweep_of_the_whole_table_leaves_the_position(table: Unmarked) -> None:
    a, b, c = (table.insert(key) for key in "xyz")
    marks = Marks(table)
    assert marks.ids(limit=1) == [a]

    assert marks.ids(sweep=Sweep({b}, (), is_whole=True)) == [a, c]
    assert marks.ids() == [b, c]


def test_what_a_sweep_has_found_is_not_found_again(table: Unmarked) -> None:
    writer = table.begin()
    late = writer.insert()
    last = table.insert()
    marks = Marks(table)
    assert marks.ids() == [last]
    writer.commit()

    assert marks.ids(sweep=Sweep({last}, ())) == [late]
    assert marks.ids() == []


def test_a_long_transaction_keeps_its_place_beside_a_thousand_rollbacks(
    table: Unmarked,
) -> None:
    writer = table.begin()
    first = writer.insert("k")
    for number in range(1002):
        table.insert_by_hand(first + 2 + 2 * number, "other")
    marks = Marks(table)
    while marks.ids(limit=1000):
        pass

    writer.commit()
    second = table.insert_by_hand(first + 5000, "k")

    assert marks.ids() == [first, second]


def test_after_a_failover_nothing_is_read_until_marks_begin_again() -> None:
    """In memory: its pooler goes on with the same connection."""
    table = MemoryUnmarked()
    marks = Marks(table)
    first = table.insert()
    standby = table._table.standby()
    lost = [table.insert() for _ in range(3)]
    assert marks.ids() == [first, *lost]

    table._table.promote(standby)
    again = [table.insert() for _ in range(4)]
    assert again[:3] == lost
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable):
            marks.ids()

    marks.begin()
    assert marks.ids() == [first, *again]


def test_a_timeline_that_was_named_is_that_of_the_pages_after_it() -> None:
    """A leader asks for it first, and a failover may come before its first page."""
    table = MemoryUnmarked()
    marks = Marks(table)
    table.insert()
    named = marks.timeline()
    table._table.promote(table._table.standby())

    with pytest.raises(DatabaseUnavailable):
        marks.ids()
    marks.begin()
    assert marks.timeline() != named
    assert len(marks.ids()) == 1
