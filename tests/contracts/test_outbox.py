"""The same scenarios on the table in memory and on the one in Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from django_outbox.exceptions import DatabaseUnavailable
from django_outbox.message.pauses import NOTHING_PAUSED, Pauses
from django_outbox.message.record import Failure, KeyToRead

from .tables import PAGE_BYTES, MemoryTable, PostgresTable, Table

ME = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


@pytest.fixture(
    params=[
        "memory",
        pytest.param("postgres", marks=pytest.mark.django_db(transaction=True)),
    ]
)
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    """An empty table of each kind."""
    if request.param == "memory":
        table: Table = MemoryTable()
    else:
        table = PostgresTable(request.getfixturevalue("database_url"))
    yield table
    table.close()


def test_mark_claims_from_the_head_in_id_order(table: Table) -> None:
    a, b, c = table.insert("a"), table.insert("b"), table.insert("c")
    outbox = table.open()

    assert [record.id for record in outbox.mark(ME, limit=2)] == [a, b]
    assert table.marks() == {a: ME, b: ME, c: None}


def test_what_is_paused_is_known_at_once_and_says_nothing_of_rows(table: Table) -> None:
    outbox = table.open()
    assert outbox.pauses() == NOTHING_PAUSED
    number = table.insert("a", topic="orders")
    table.pause("orders")
    table.pause("t", "")
    table.pause("t", "k")

    assert outbox.pauses() == Pauses(
        topics=frozenset({"orders"}), keys=frozenset({("t", ""), ("t", "k")})
    )
    table.pause("")
    assert outbox.pauses().is_all
    assert [record.id for record in outbox.mark(ME, limit=2)] == [number]


def test_a_mark_ends_where_its_values_fill_it(table: Table) -> None:
    a, b = table.insert("x", "v" * (PAGE_BYTES - 100)), table.insert("y", b"v" * 100)
    c, d = table.insert("x", "v" * 5 * PAGE_BYTES), table.insert("x")
    outbox = table.open()

    assert [record.id for record in outbox.mark(ME, limit=10)] == [a, b]
    assert table.marks() == {a: ME, b: ME, c: None, d: None}
    assert [record.id for record in outbox.mark(ME, limit=10)] == [c]


def test_headers_fill_a_mark_as_values_do(table: Table) -> None:
    long = [("n" * (PAGE_BYTES // 2), None), ("a", "v" * (PAGE_BYTES // 2))]
    a, b = table.insert("x", headers=[("a", "b")]), table.insert("x", headers=long)
    c = table.insert("x")
    outbox = table.open()

    assert [record.id for record in outbox.mark(ME, limit=10)] == [a, b]
    assert [record.id for record in outbox.mark(ME, limit=10)] == [c]


def test_only_rows_of_the_leader_that_are_still_there_are_kept(table: Table) -> None:
    a, b = table.insert("a"), table.insert("b")
    outbox = table.open()
    first, second = outbox.mark(ME, limit=2)

    assert outbox.kept(ME, [first, second]) == {a, b}
    assert outbox.kept(OTHER, [first, second]) == set()
    outbox.purge(ME, [first])
    assert outbox.kept(ME, [first, second]) == {b}
    assert outbox.locked([first, second]) == set()


def test_a_write_without_rows_changes_nothing(table: Table) -> None:
    table.insert("a")
    outbox = table.open()
    outbox.mark(ME, limit=1)

    assert outbox.purge(ME, []) == outbox.fail(ME, []) == outbox.park(ME, []) == 0
    assert len(table.marks()) == 1


def test_mark_passes_over_what_this_leader_has_marked(table: Table) -> None:
    first = table.insert()
    outbox = table.open()
    outbox.mark(ME, limit=10)
    second = table.insert()

    assert [record.id for record in outbox.mark(ME, limit=10)] == [second]
    assert outbox.mark(ME, limit=10) == []
    assert first < second


def test_mark_takes_over_what_another_leader_has_marked(table: Table) -> None:
    a, b = table.insert(), table.insert()
    table.open().mark(OTHER, limit=10)

    assert [record.id for record in table.open().mark(ME, limit=10)] == [a, b]
    assert table.marks() == {a: ME, b: ME}


def test_mark_finds_a_row_that_commits_behind_marked_rows(table: Table) -> None:
    outbox = table.open()
    with table.insert_late() as late:
        early = table.insert()
        assert [record.id for record in outbox.mark(ME, limit=10)] == [early]

    assert late < early
    assert [record.id for record in outbox.mark(ME, limit=10)] == [late]


def test_mark_of_an_empty_table_returns_nothing(table: Table) -> None:
    assert table.open().mark(ME, limit=10) == []


def test_mark_returns_every_field(table: Table) -> None:
    number = table.insert(
        "clé", "Wert ☂", topic="orders.v1", headers=[("a", "1")], partition=3
    )

    (record,) = table.open().mark(ME, limit=10)

    assert record.id == number
    assert record.topic == "orders.v1"
    assert record.key == "clé"
    assert record.value == "Wert ☂"
    assert record.header_keys == ["a"]
    assert record.header_values == ["1"]
    assert record.partition == 3
    assert len(record.message_id) == 36
    assert len(record.created_at) == 16
    assert record.created_at.isdigit()
    assert record.cluster_id == 0
    assert record.attempts == 0


@pytest.mark.parametrize(
    "value", [None, "", "text", "\U0001f600", b"", b"\x00\xff\xfe", b"\xc3\xa9"]
)
def test_mark_returns_a_value_as_it_was_written(
    table: Table, value: str | bytes | None
) -> None:
    table.insert(value=value)

    (record,) = table.open().mark(ME, limit=10)

    assert record.value == value
    assert type(record.value) is type(value)
    assert record.is_tombstone == (value is None)


def test_mark_keeps_headers_in_order_with_repeats_and_nulls(table: Table) -> None:
    table.insert(headers=[("b", "1"), ("a", None), ("b", "ü"), ("c", "")])

    (record,) = table.open().mark(ME, limit=10)

    assert record.header_keys == ["b", "a", "b", "c"]
    assert record.header_values == ["1", None, "ü", ""]


def test_mark_gives_every_row_its_own_message_id_for_ever(table: Table) -> None:
    table.insert()
    table.insert()
    first = [record.message_id for record in table.open().mark(OTHER, limit=10)]
    again = [record.message_id for record in table.open().mark(ME, limit=10)]

    assert len(set(first)) == 2
    assert again == first


def test_purge_deletes_what_this_leader_has_marked(table: Table) -> None:
    a, b = table.insert(), table.insert()
    outbox = table.open()
    records = outbox.mark(ME, limit=10)

    assert outbox.purge(ME, records[:1]) == 1
    assert table.marks() == {b: ME}
    assert table.archived() == [a]


def test_purge_counts_only_rows_that_were_there(table: Table) -> None:
    table.insert()
    table.insert()
    outbox = table.open()
    records = outbox.mark(ME, limit=10)
    outbox.purge(ME, records[:1])

    assert outbox.purge(ME, records) == 1
    assert outbox.purge(ME, []) == 0


def test_purge_by_a_leader_of_the_past_deletes_nothing(table: Table) -> None:
    number = table.insert()
    stale = table.open()
    records = stale.mark(OTHER, limit=10)
    table.open().mark(ME, limit=10)

    assert stale.purge(OTHER, records) == 0
    assert table.marks() == {number: ME}
    assert table.archived() == []


def test_without_a_leader_id_rows_are_found_by_their_messages(table: Table) -> None:
    a, b = table.insert("a"), table.insert("b")
    outbox = table.open()
    first, second = outbox.mark(ME, limit=2)
    table.open().mark(OTHER, limit=1)
    another = second._replace(message_id=str(uuid4()))

    assert outbox.kept(None, [first, another]) == {a}
    assert outbox.purge(None, [first, another]) == 1
    assert outbox.purge(None, [first, another]) == 0
    assert table.marks() == {b: ME}


def test_reset_lets_the_rows_of_a_lane_be_marked_again_in_order(table: Table) -> None:
    a, b, c = table.insert("x"), table.insert("y"), table.insert("x")
    outbox = table.open()
    outbox.mark(ME, limit=10)
    d = table.insert("x")

    outbox.reset(ME, [KeyToRead(("t", "x"), a)])
    assert table.marks() == {a: None, b: ME, c: None, d: None}
    assert [record.id for record in outbox.mark(ME, limit=10)] == [a, c, d]


def test_reset_tells_the_same_key_of_two_topics_apart(table: Table) -> None:
    a, b = table.insert("x", topic="t"), table.insert("x", topic="u")
    c, d = table.insert("y", topic="t"), table.insert("y", topic="u")
    outbox = table.open()
    outbox.mark(ME, limit=10)

    outbox.reset(ME, [KeyToRead(("u", "x"), b), KeyToRead(("t", "y"), c)])
    assert table.marks() == {a: ME, b: None, c: None, d: ME}


def test_reset_finds_a_failed_row_whose_topic_and_key_were_mended(table: Table) -> None:
    a, b = table.insert("x"), table.insert("y")
    outbox = table.open()
    outbox.mark(ME, limit=10)
    table.mend(a, topic="u", key="z")

    outbox.reset(ME, [KeyToRead(("t", "x"), a)])
    assert table.marks() == {a: None, b: ME}
    (mended,) = outbox.mark(ME, limit=10)
    assert (mended.id, mended.ordering_key) == (a, ("u", "z"))


def test_reset_by_a_leader_of_the_past_touches_nothing(table: Table) -> None:
    number = table.insert("x")
    stale = table.open()
    stale.mark(OTHER, limit=10)
    table.open().mark(ME, limit=10)

    stale.reset(OTHER, [KeyToRead(("t", "x"), number)])
    assert table.marks() == {number: ME}


def test_reset_by_a_leader_that_has_marked_nothing_here_finds_its_rows(
    table: Table,
) -> None:
    number = table.insert("x")
    table.open().mark(ME, limit=10)

    table.open().reset(
        ME, [KeyToRead(("t", "x"), number), KeyToRead(("t", "z"), number)]
    )
    assert table.marks() == {number: None}


def test_fail_counts_an_attempt_and_keeps_the_mark(table: Table) -> None:
    a, b = table.insert("x"), table.insert("y")
    outbox = table.open()
    records = outbox.mark(ME, limit=10)

    assert outbox.fail(ME, [Failure(records[0], "CODE: went wrong")]) == 1
    assert outbox.fail(ME, [Failure(records[0], "CODE: again")]) == 1
    assert table.errors() == {a: (2, "CODE: again"), b: (0, "")}
    assert table.marks() == {a: ME, b: ME}
    assert [r.attempts for r in table.open().mark(OTHER, limit=10)] == [2, 0]


def test_fail_by_a_leader_of_the_past_notes_nothing(table: Table) -> None:
    number = table.insert()
    stale = table.open()
    (record,) = stale.mark(OTHER, limit=10)
    table.open().mark(ME, limit=10)

    assert stale.fail(OTHER, [Failure(record, "CODE: late")]) == 0
    assert table.errors() == {number: (0, "")}


def test_park_moves_the_row_with_error_and_attempts(table: Table) -> None:
    a, b = table.insert("x", b"\x00raw"), table.insert("x")
    outbox = table.open()
    (record, _) = outbox.mark(ME, limit=10)
    outbox.fail(ME, [Failure(record, "CODE: first")])

    assert outbox.park(ME, [Failure(record, "CODE: last")]) == 1
    assert table.parked() == [(a, 2, "CODE: last")]
    assert table.marks() == {b: ME}


def test_park_by_a_leader_of_the_past_moves_nothing(table: Table) -> None:
    number = table.insert()
    stale = table.open()
    (record,) = stale.mark(OTHER, limit=10)
    table.open().mark(ME, limit=10)

    assert stale.park(OTHER, [Failure(record, "CODE: late")]) == 0
    assert table.parked() == []
    assert table.marks() == {number: ME}


def test_backlog_counts_the_rows_and_ages_the_first(table: Table) -> None:
    table.insert_aged(90.0)
    table.insert()

    backlog = table.open().backlog()

    assert backlog.records == 2
    assert not backlog.is_capped
    assert 90.0 <= backlog.oldest_age < 120.0


def test_backlog_of_an_empty_table_is_nothing(table: Table) -> None:
    assert table.open().backlog() == (0, False, 0.0)


def test_the_largest_topics_are_named_and_the_rest_is_counted(table: Table) -> None:
    for topic, count in (("small", 1), ("large", 3), ("medium", 2), ("tiny", 1)):
        for _ in range(count):
            table.insert(topic=topic)
    outbox = table.open()
    assert outbox.topics(limit=2) == ((("large", 3), ("medium", 2)), 2)
    largest, others = outbox.topics(limit=4)
    assert dict(largest) == {"small": 1, "large": 3, "medium": 2, "tiny": 1}
    assert others == 0


def test_an_empty_table_has_no_topics(table: Table) -> None:
    assert table.open().topics(limit=2) == ((), 0)


def test_backlog_is_not_negative_for_a_row_from_the_future(table: Table) -> None:
    table.insert_aged(-90.0)

    assert table.open().backlog() == (1, False, 0.0)


def test_a_call_that_loses_its_connection_is_uncertain_and_the_next_one_works(
    table: Table,
) -> None:
    number = table.insert()
    outbox = table.open()
    outbox.ping()
    table.disconnect()

    with pytest.raises(DatabaseUnavailable):
        outbox.mark(ME, limit=10)
    table.reconnect()

    outbox.ping()
    assert [record.id for record in outbox.mark(ME, limit=10)] == [number]
