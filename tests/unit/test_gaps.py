"""
Rows that commit in any order are each found once, and in the order of a key.

A seeded application draws ids, commits late, prepares and rolls back; the real
reader reads the shipped fake of the table. A reader that forgets a gap too
soon fails the same check.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from django_outbox.message.record import Record
from django_outbox.relay.gaps import MAX_GAPS, Gaps
from django_outbox.relay.memory_marks import MemoryMarks
from tests.fakes.unmarked import InMemoryTransaction, InMemoryUnmarked


def test_ids_in_a_row_leave_no_gap() -> None:
    gaps = Gaps()
    gaps.shown([1, 2, 3])

    assert gaps.position == 3
    assert gaps.ranges == []
    assert not gaps.are_waiting


def test_what_lies_between_ids_is_a_gap_and_so_is_what_lies_before_the_first() -> None:
    gaps = Gaps()
    gaps.shown([4, 5, 9])

    assert gaps.ranges == [(1, 3), (6, 8)]
    assert gaps.are_waiting


def test_a_row_that_shows_in_a_gap_splits_it() -> None:
    gaps = Gaps()
    gaps.shown([9])
    gaps.shown([4])

    assert gaps.ranges == [(1, 3), (5, 8)]
    assert gaps.position == 9


def test_a_gap_waits_for_each_of_its_open_writers() -> None:
    gaps = Gaps()
    gaps.shown([2])
    gaps.note_writers(frozenset({"a", "b"}), is_one_prepared=False)
    gaps.note_writers(frozenset({"b", "c"}), is_one_prepared=False)
    gaps.shown([])
    assert gaps.ranges == [(1, 1)]

    gaps.note_writers(frozenset({"c"}), is_one_prepared=False)
    assert gaps.ranges == [(1, 1)]
    assert not gaps.are_waiting
    gaps.shown([])

    assert gaps.ranges == []


def test_a_transaction_open_when_a_gap_is_first_checked_is_a_writer() -> None:
    gaps = Gaps()
    gaps.shown([2])
    gaps.shown([])

    assert gaps.ranges == [(1, 1)]
    gaps.note_writers(frozenset(), is_one_prepared=False)
    gaps.shown([])
    assert gaps.ranges == [(1, 1)]
    gaps.note_writers(frozenset(), is_one_prepared=False)
    gaps.shown([])
    assert gaps.ranges == []


def test_no_gap_is_given_up_while_somebody_is_prepared() -> None:
    """Such a transaction may have gone by another name before."""
    gaps = Gaps()
    gaps.shown([2])
    gaps.note_writers(frozenset({"3/1"}), is_one_prepared=False)
    gaps.note_writers(frozenset({"-1/7"}), is_one_prepared=True)
    gaps.shown([])
    assert gaps.ranges == [(1, 1)]

    gaps.note_writers(frozenset(), is_one_prepared=False)
    gaps.shown([1])
    assert gaps.ranges == []


def test_a_page_decides_only_what_it_has_seen() -> None:
    gaps = Gaps()
    gaps.shown([2, 9, 20])
    gaps.note_writers(frozenset(), is_one_prepared=False)
    gaps.note_writers(frozenset(), is_one_prepared=False)
    gaps.shown([5])

    assert gaps.ranges == [(6, 8), (10, 19)]
    gaps.shown([12])
    assert gaps.ranges == [(13, 19)]
    gaps.shown([])
    assert gaps.ranges == []


def test_ids_of_other_clusters_leave_the_own_ones_between_them_in_the_gap() -> None:
    """Of three clusters, this one draws 1, 4, 7 and 10; 7 is not there yet."""
    gaps = Gaps(id_increment=3)
    gaps.shown([1, 4, 10])
    assert gaps.ranges == [(5, 9)]

    gaps.found([5, 8])

    assert (6, 7) in gaps.ranges
    gaps.shown([7])
    assert (6, 7) not in gaps.ranges


def test_no_gap_is_dropped_however_many_there_are() -> None:
    gaps = Gaps()
    gaps.shown(range(2, 2 * MAX_GAPS, 2))
    assert not gaps.is_full
    gaps.shown([2 * MAX_GAPS, 2 * MAX_GAPS + 2])

    assert gaps.is_full
    assert gaps.ranges[0] == (1, 1)
    assert len(gaps) == MAX_GAPS + 1


def test_with_too_many_gaps_the_position_waits_for_the_open_transactions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("django_outbox.relay.gaps.MAX_GAPS", 2)
    table = InMemoryUnmarked()
    reader = Reader(table)
    first = table.begin()
    a = first.insert("t", "k", "v").id
    for _ in range(2):
        rolled_back = table.begin()
        rolled_back.insert("t", "other", "v")
        table.insert("t", "other", "v")
        rolled_back.rollback()

    def ids(looks: int = 5) -> list[int]:
        found = []
        for _ in range(looks):
            reader.now += 0.06
            found += reader.read(10)
        return found

    assert ids() == [3, 5]
    c = table.insert("t", "k", "v").id
    d = table.insert("t", "other", "v").id
    assert ids() == []
    first.commit()

    assert ids() == [a, c, d]
    warnings = [r for r in caplog.records if getattr(r, "action", "") == "gaps_full"]
    assert len(warnings) == 1


class Application:
    """Writers of a few keys; one key has one writer at a time."""

    def __init__(self, dice: Random) -> None:
        self.table = InMemoryUnmarked()
        self.committed: list[tuple[str, int]] = []
        """Key and id of each row, in the order of the commits."""
        self._dice = dice
        self._open: dict[str, InMemoryTransaction] = {}
        self._rows: dict[str, list[int]] = {}

    def do_something(self) -> None:
        key = self._dice.choice("abcdefgh")
        transaction = self._open.get(key)
        act = self._dice.choice(("insert", "insert", "commit", "roll back", "prepare"))
        if transaction is None:
            self._open[key] = transaction = self.table.begin()
            self._rows[key] = []
        if act == "insert" or not self._rows[key]:
            self._rows[key].append(transaction.insert("t", key).id)
        elif act == "prepare":
            transaction.prepare()
        else:
            self._end(key, is_commit=act == "commit")

    def end(self) -> None:
        for key in [*self._open]:
            self._end(key, is_commit=True)

    def _end(self, key: str, *, is_commit: bool) -> None:
        transaction, rows = self._open.pop(key), self._rows.pop(key)
        if is_commit:
            transaction.commit()
            self.committed += [(key, number) for number in rows]
        else:
            transaction.rollback()


class Reader:
    """A reader that only reads pages, so that it has to rely on its gaps."""

    def __init__(self, table: InMemoryUnmarked) -> None:
        self.now = 0.0
        self.found: list[tuple[str, int]] = []
        self._table = table
        self._unpurged: list[Record] = []
        self._marks = MemoryMarks(
            table, clock=lambda: self.now, timeline=table.database_timeline
        )

    def read(self, limit: int) -> list[int]:
        records = self._marks.mark("me", limit=limit)
        self.found += [(record.key, record.id) for record in records]
        self._unpurged += records
        return [record.id for record in records]

    def purge(self) -> None:
        """Delete what was read, which other readers then take for gaps."""
        self._table.purge("me", self._unpurged)
        self._unpurged = []


def missed(
    seed: int, *, shards: int = 1
) -> tuple[set[tuple[str, int]], Sequence[tuple[str, int]]]:
    """Let an application and readers live; return what was lost, and repeated."""
    dice = Random(seed)
    application = Application(dice)
    table = application.table
    readers = [Reader(table.of_shard(shard, shards)) for shard in range(shards)]
    for _ in range(300):
        for _ in range(dice.randrange(4)):
            application.do_something()
        reader = dice.choice(readers)
        reader.now += dice.choice((0.001, 0.06))
        reader.read(dice.choice((1, 3, 50)))
        if dice.random() < 0.3:
            dice.choice(readers).purge()
    application.end()
    for _ in range(500):
        for reader in readers:
            reader.now += 0.06
            reader.read(3)
    found = [row for reader in readers for row in reader.found]
    committed = application.committed
    for key in "abcdefgh":
        mine = [number for ordering_key, number in found if ordering_key == key]
        assert mine == sorted(mine), f"seed {seed}: {key} is out of order"
    return set(committed) - set(found), found


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("seed", range(20))
def test_each_row_is_found_once_in_the_order_of_its_key(seed: int, shards: int) -> None:
    lost, found = missed(seed, shards=shards)

    assert not lost
    assert len(found) == len(set(found))
    assert len(found) > 50


def test_a_reader_that_forgets_a_gap_at_once_loses_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check above can fail."""

    def forget(self: Gaps, writers: frozenset[str], *, is_one_prepared: bool) -> None:
        for gap in self._gaps:
            gap.is_last_look = True

    monkeypatch.setattr(Gaps, "note_writers", forget)

    assert any(missed(seed)[0] for seed in range(5))


def test_a_reader_that_takes_prepared_for_ended_loses_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    note_writers = Gaps.note_writers

    def mistake(self: Gaps, writers: frozenset[str], *, is_one_prepared: bool) -> None:
        note_writers(self, writers, is_one_prepared=False)

    monkeypatch.setattr(Gaps, "note_writers", mistake)

    assert any(missed(seed)[0] for seed in range(20))


def test_ids_of_one_of_several_clusters_lie_apart_without_gaps() -> None:
    gaps = Gaps(id_increment=3)
    gaps.shown([2, 5, 8])
    assert (gaps.position, gaps.ranges) == (8, [])

    gaps.shown([14])
    assert gaps.ranges == [(9, 13)]
    gaps.shown([11])

    assert gaps.ranges == []
