"""The same scenarios on the unmarked table in memory and on the one in Postgres."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from django_outbox.exceptions import DatabaseUnavailable
from django_outbox.message.record import Failure, KeyToRead, Record, Sweep

from .tables import PAGE_BYTES
from .unmarked import Adapter, MemoryUnmarked, PostgresUnmarked, Unmarked

ME = "11111111-1111-4111-8111-111111111111"


@pytest.fixture(
    params=[
        "memory",
        pytest.param("postgres", marks=pytest.mark.django_db(transaction=True)),
    ]
)
def table(request: pytest.FixtureRequest) -> Iterator[Unmarked]:
    """An empty table of each kind."""
    if request.param == "memory":
        table: Unmarked = MemoryUnmarked()
    else:
        table = PostgresUnmarked(request.getfixturevalue("database_url"))
    yield table
    table.close()


def ids(records: list[Record]) -> list[int]:
    return [record.id for record in records]


def all_of(outbox: Adapter) -> list[Record]:
    """Read the table, a page at a time."""
    records: list[Record] = []
    while page := outbox.page(records[-1].id if records else 0, (), limit=1000):
        records += page
    return records


def paged(
    outbox: Adapter,
    position: int = 0,
    *gaps: tuple[int, int],
    keys: Sequence[KeyToRead] = (),
    limit: int = 10,
) -> list[int]:
    return ids(outbox.page(position, gaps, keys, limit=limit))


def test_a_page_shows_what_lies_behind_the_position_in_id_order(
    table: Unmarked,
) -> None:
    a, b, c = table.insert("x"), table.insert("y"), table.insert("x")
    outbox = table.open()

    assert paged(outbox) == [a, b, c]
    assert paged(outbox, a) == [b, c]
    assert paged(outbox, a, limit=1) == [b]
    assert paged(outbox, c) == []


def test_a_page_leaves_the_table_as_it_was(table: Unmarked) -> None:
    number = table.insert()
    outbox = table.open()
    paged(outbox)

    assert table.marks() == {number: None}
    assert paged(outbox) == [number]


def test_a_page_shows_gaps_and_what_follows_in_one_order(table: Unmarked) -> None:
    a, b, c, d, e = (table.insert() for _ in range(5))
    outbox = table.open()

    assert paged(outbox, d, (a, a), (c, c)) == [a, c, e]
    assert paged(outbox, d, (a, b), (c, c), limit=3) == [a, b, c]
    assert paged(outbox, e, (b, c)) == [b, c]
    assert paged(outbox, e, (e + 1, e + 9)) == []


def test_a_page_shows_a_gap_once_its_transaction_has_committed(
    table: Unmarked,
) -> None:
    outbox, writer = table.open(), table.begin()
    gap = writer.insert()
    later = table.insert()

    assert paged(outbox) == [later]
    assert paged(outbox, later, (1, later - 1)) == []
    writer.commit()
    assert paged(outbox, later, (1, later - 1)) == [gap]


def test_a_page_never_shows_what_was_rolled_back(table: Unmarked) -> None:
    outbox, writer = table.open(), table.begin()
    writer.insert()
    writer.rollback()

    assert paged(outbox) == []


def test_a_page_ends_where_its_values_fill_it(table: Unmarked) -> None:
    a, b = table.insert("x", "v" * (PAGE_BYTES - 100)), table.insert("x", b"v" * 100)
    c, d = table.insert("x", "v" * 5 * PAGE_BYTES), table.insert("x")
    outbox = table.open()

    assert paged(outbox) == [a, b]
    assert paged(outbox, b) == [c]
    assert paged(outbox, c) == [d]
    assert paged(outbox, d, (a, b), (c, c)) == [a, b]
    assert paged(outbox, d, keys=[KeyToRead(("t", "x"), b)]) == [b, c]
    assert ids(outbox.sweep(d, Sweep({a}, ()), limit=10)) == [b, c]


def test_headers_fill_a_page_as_values_do(table: Unmarked) -> None:
    long = [("n" * (PAGE_BYTES // 2), None), ("a", "v" * (PAGE_BYTES // 2))]
    a, b = table.insert("x", headers=[("a", "b")]), table.insert("x", headers=long)
    c = table.insert("x")
    outbox = table.open()

    assert paged(outbox) == [a, b]
    assert paged(outbox, b) == [c]
    assert paged(outbox, c, (a, c)) == [a, b]
    assert paged(outbox, c, keys=[KeyToRead(("t", "x"), a)]) == [a, b]
    assert ids(outbox.sweep(c, Sweep((), ()), limit=10)) == [a, b]


def test_a_page_returns_every_field(table: Unmarked) -> None:
    number = table.insert(
        "clé", b"\x00\xff", topic="orders.v1", headers=[("a", None)], partition=3
    )

    (record,) = table.open().page(0, [], limit=10)
    (again,) = table.open().page(number, [(1, number)], limit=10)

    assert record == again
    assert (record.id, record.topic, record.key) == (number, "orders.v1", "clé")
    assert (record.value, record.partition) == (b"\x00\xff", 3)
    assert (record.header_keys, record.header_values) == (["a"], [None])
    assert len(record.message_id) == 36


def test_whoever_has_drawn_an_id_is_a_writer_until_the_end(table: Unmarked) -> None:
    outbox, one, two = table.open(), table.begin(), table.begin()
    before, _ = outbox.writers()
    one.insert()
    first, is_one_prepared = outbox.writers()
    two.insert()
    both, _ = outbox.writers()
    one.commit()
    second, _ = outbox.writers()
    two.rollback()
    after, _ = outbox.writers()

    assert (before, after) == (frozenset(), frozenset())
    assert (len(first), len(both), len(second)) == (1, 2, 1)
    assert first | second == both
    assert not is_one_prepared


def test_a_writer_never_gets_a_name_that_another_has_had(table: Unmarked) -> None:
    outbox = table.open()
    names: set[str] = set()
    for _ in range(3):
        writer = table.begin()
        writer.insert()
        names |= outbox.writers()[0]
        writer.commit()

    assert len(names) == 3


def test_a_prepared_writer_is_told_from_the_others(table: Unmarked) -> None:
    if isinstance(table, PostgresUnmarked) and not table.has_prepared_transactions:
        pytest.skip("max_prepared_transactions is 0")
    outbox, writer = table.open(), table.begin()
    number = writer.insert()
    writer.prepare()
    names, is_one_prepared = outbox.writers()

    assert is_one_prepared
    assert len(names) == 1
    assert paged(outbox) == []
    writer.commit()
    assert outbox.writers() == (frozenset(), False)
    assert paged(outbox) == [number]


def test_a_sweep_passes_over_topics_as_a_whole(table: Unmarked) -> None:
    table.insert("a", topic="paused")
    b, c = table.insert("a", topic="t"), table.insert("b", topic="t")
    outbox = table.open()

    sweep = Sweep((), [("t", "b")], passed_topics={"paused", "other"})
    assert ids(outbox.sweep(c, sweep, limit=10)) == [b]


def test_a_sweep_finds_what_is_left_up_to_the_position(table: Unmarked) -> None:
    a, b, c, d = (table.insert(key) for key in "wxyz")
    outbox = table.open()

    def swept(position: int, *known: int, limit: int = 10, passed: str = "") -> object:
        return ids(
            outbox.sweep(
                position,
                Sweep(frozenset(known), [("t", key) for key in passed]),
                limit=limit,
            )
        )

    assert swept(c) == [a, b, c]
    assert swept(d, a, c) == [b, d]
    assert swept(d, limit=2) == [a, b]
    assert swept(d, a, passed="xz") == [c]


def test_a_sweep_finds_an_id_that_was_set_by_hand(table: Unmarked) -> None:
    outbox, last = table.open(), table.insert()
    table.insert_by_hand(-7)

    assert paged(outbox, last) == []
    assert ids(outbox.sweep(last, Sweep((last,), ()), limit=10)) == [-7]


def test_a_page_shows_held_keys_again_from_the_lowest_id_on(table: Unmarked) -> None:
    a, b, c, d, e = (table.insert(key) for key in "xyxyx")
    other = table.insert("x", topic="u")
    outbox = table.open()
    x, y = ("t", "x"), ("t", "y")

    def shown(*keys: KeyToRead, position: int = other, limit: int = 10) -> object:
        return paged(outbox, position, keys=keys, limit=limit)

    assert shown(KeyToRead(x, a)) == [a, c, e]
    assert shown(KeyToRead(x, c), KeyToRead(y, b), limit=2) == [b, c]
    assert shown(KeyToRead(("u", "y"), 1)) == []
    # With what lies behind the position, which counts for the limit, too.
    assert shown(KeyToRead(x, a), position=d) == [a, c, e, other]
    assert shown(KeyToRead(x, a), position=d, limit=3) == [a, c, e]


def test_a_row_of_a_held_key_in_a_gap_comes_twice(table: Unmarked) -> None:
    a, b, c = (table.insert(key) for key in "xyx")
    outbox = table.open()

    shown = paged(outbox, c, (a, b), keys=[KeyToRead(("t", "x"), a)])

    assert shown == [a, a, b, c]


def test_a_purge_needs_no_mark(table: Unmarked) -> None:
    a, b = table.insert(), table.insert()
    outbox = table.open()
    records = outbox.page(0, [], limit=10)

    assert outbox.purge(ME, records[:1]) == 1
    assert outbox.purge(ME, records[:1]) == 0
    assert table.ids() == [b]
    assert table.archived() == [a]


def test_a_purge_knows_rows_by_what_a_ledger_says(table: Unmarked) -> None:
    table.insert()
    outbox = table.open()
    (record,) = outbox.page(0, [], limit=10)

    assert outbox.purge(ME, [Record.identified(record.id, record.message_id)]) == 1
    assert table.ids() == []


def test_an_id_that_was_given_again_is_another_row(table: Unmarked) -> None:
    """After an asynchronous failover ids are given again, message ids never."""
    number = table.insert()
    outbox = table.open()
    (former,) = outbox.page(0, [], limit=10)
    table.delete(number)
    table.insert_by_hand(number)

    assert outbox.purge(ME, [former]) == 0
    assert outbox.fail(ME, [Failure(former, "CODE: late")]) == 0
    assert outbox.park(ME, [Failure(former, "CODE: late")]) == 0
    assert table.ids() == [number]
    assert table.errors() == {number: (0, "")}
    assert table.parked() == []


@pytest.mark.parametrize("step", [1, 2, 20])
def test_a_purge_of_many_leaves_rows_between_them_and_ids_that_were_given_again(
    table: Unmarked, step: int
) -> None:
    numbers = [table.insert() for _ in range(80 * step)]
    outbox = table.open()
    records = all_of(outbox)[::step]
    again, other = records[40].id, records[50].id
    table.delete(again)
    table.insert_by_hand(again)
    # The message id of a row, with the id of none.
    records[50] = records[50]._replace(id=numbers[-1] + 1)

    assert outbox.purge(ME, [*reversed(records)]) == 78
    purged = {record.id for record in records} - {again, other}
    assert table.ids() == [n for n in numbers if n not in purged]


def test_an_id_that_was_given_again_is_purged_under_both_message_ids(
    table: Unmarked,
) -> None:
    numbers = [table.insert() for _ in range(80)]
    outbox = table.open()
    former = all_of(outbox)[7]
    table.delete(former.id)
    table.insert_by_hand(former.id)

    assert outbox.purge(ME, [*all_of(outbox), former]) == len(numbers)
    assert table.ids() == []


def test_a_failure_is_counted_and_shown_with_the_row(table: Unmarked) -> None:
    number = table.insert()
    outbox = table.open()
    (record,) = outbox.page(0, [], limit=10)

    assert outbox.fail(ME, [Failure(record, "CODE: went wrong")]) == 1
    assert table.errors() == {number: (1, "CODE: went wrong")}
    assert [r.attempts for r in outbox.page(0, [], limit=10)] == [1]


def test_a_parked_row_is_gone(table: Unmarked) -> None:
    number = table.insert()
    outbox = table.open()
    (record,) = outbox.page(0, [], limit=10)

    assert outbox.park(ME, [Failure(record, "CODE: last")]) == 1
    assert table.ids() == []
    assert table.parked() == [(number, 1, "CODE: last")]


def test_the_history_stays_the_same_on_one_timeline(table: Unmarked) -> None:
    outbox = table.open()
    first = outbox.database_timeline()
    table.insert()
    outbox.page(0, [], limit=10)

    assert first
    assert outbox.database_timeline() == first
    assert table.open().database_timeline() == first


def test_a_call_that_loses_its_connection_says_so_and_the_next_one_works(
    table: Unmarked,
) -> None:
    number = table.insert()
    outbox = table.open()
    timeline = outbox.database_timeline()
    table.disconnect()

    with pytest.raises(DatabaseUnavailable):
        paged(outbox)
    table.reconnect()

    assert paged(outbox) == [number]
    assert outbox.database_timeline() == timeline


def test_after_a_failover_rows_are_back_and_ids_are_given_again() -> None:
    """In memory; tests/acceptance does it to a real server."""
    table = MemoryUnmarked()
    outbox, fake = table.open(), table._table
    table.insert()
    standby = fake.standby()
    before = outbox.database_timeline()
    writer = table.begin()
    writer.insert()
    lost = table.insert()
    outbox.purge(ME, outbox.page(0, [], limit=10))

    fake.promote(standby)

    assert outbox.database_timeline() != before
    assert table.ids() == [1]
    with pytest.raises(DatabaseUnavailable):
        writer.commit()
    assert [table.insert(), table.insert()] == [2, lost]


def test_shards_have_each_row_once_and_all_of_a_key(table: Unmarked) -> None:
    numbers = [table.insert(str(n % 20)) for n in range(80)]
    pages = [
        table.open_shard(shard, 3).page(0, (), limit=1000, end=numbers[-1])
        for shard in range(3)
    ]

    assert sorted(number for page in pages for number in ids(page)) == numbers
    keys = [{record.key for record in page} for page in pages]
    assert all(keys)
    assert sum(map(len, keys)) == 20


def test_a_shard_is_told_which_of_the_next_rows_are_others(table: Unmarked) -> None:
    numbers = [table.insert(str(n)) for n in range(40)]
    outbox = table.open_shard(1, 2)
    mine = ids(outbox.page(0, (), limit=1000, end=numbers[-1]))
    others = sorted({*numbers} - {*mine})

    assert mine
    assert outbox.others(0, limit=100) == (others, numbers[-1], len(mine))
    half = [n for n in others if n <= numbers[19]]
    assert outbox.others(0, limit=10) == (half, numbers[19], 20 - len(half))
    assert outbox.others(numbers[-1], limit=10) == ([], numbers[-1], 0)
    assert (outbox.shards, table.open().shards) == (2, 1)


def test_a_shard_shows_no_row_of_another_in_gaps_keys_or_sweeps(
    table: Unmarked,
) -> None:
    numbers = [table.insert(str(n)) for n in range(40)]
    outbox, end = table.open_shard(0, 2), numbers[-1]
    mine = ids(outbox.page(0, (), limit=1000, end=end))
    keys = [KeyToRead(("t", str(n)), 1) for n in range(40)]

    assert ids(outbox.page(end, [(1, end)], limit=1000, end=end)) == mine
    assert ids(outbox.page(end, (), keys, limit=1000, end=end)) == mine
    sweep = Sweep(known=(), passed=(), passed_topics=())
    assert ids(outbox.sweep(end, sweep, limit=1000)) == mine
