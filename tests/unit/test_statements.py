"""The statements, before they meet a server."""

from __future__ import annotations

import pytest

from django_outbox.postgres.statements import IDENTIFIED, compose, identifier, queries

COLUMNS = {
    "kafka_value_bytes",
    "kafka_partition",
    "message_id",
    "cluster_id",
    "attempts",
    "last_error",
}


def test_every_statement_opens_with_its_name_for_the_operator() -> None:
    assert {"mark", "reset", "purge", "archive", "fail", "park"} < set(queries())
    for name, text in queries().items():
        assert text.startswith(f"-- outbox: {name}\n")
        assert text.count("--") == 1
        assert ";" not in text


@pytest.mark.parametrize("name", ["reset", "purge", "archive", "fail", "park"])
def test_every_write_by_a_leader_carries_its_leader_id(name: str) -> None:
    assert b"leader_id = %(leader_id)s::uuid" in compose("outbox", COLUMNS)[name]


@pytest.mark.parametrize("name", ["purge", "archive", "fail", "park"])
@pytest.mark.parametrize("columns", [COLUMNS, set()])
def test_without_marks_every_write_carries_the_message_ids(
    name: str, columns: set[str]
) -> None:
    statement = compose("outbox", columns, owned=IDENTIFIED)[name]
    assert b"leader_id" not in statement
    assert b"= ANY(%(message_ids)s::uuid[])" in statement


@pytest.mark.parametrize("name", ["purge_run", "archive_run"])
def test_a_run_is_purged_by_message_ids_and_only_without_marks(name: str) -> None:
    statement = compose("outbox", COLUMNS, owned=IDENTIFIED)[name]

    assert b'uuid_send("o"."message_id") = substr(' in statement
    assert name not in compose("outbox", COLUMNS)


def test_a_column_that_the_table_has_is_read_and_another_is_replaced() -> None:
    ours = compose("outbox", COLUMNS)["mark"].decode()
    bare = compose("outbox", set())["mark"].decode()

    assert '"o"."message_id"::text' in ours
    assert "md5" not in ours
    assert "message_id" not in bare
    assert "md5(" in bare
    assert "NULL::bytea" in bare


@pytest.mark.parametrize(
    ("table", "quoted"),
    [
        ("outbox", '"outbox_parked"'),
        ("sales.outbox", '"sales"."outbox_parked"'),
        ('x"; drop table y', '"x""; drop table y_parked"'),
    ],
)
def test_a_name_is_quoted_with_its_schema(table: str, quoted: str) -> None:
    assert identifier(table, suffix="_parked").as_string(None) == quoted


def test_ids_are_found_without_reading_a_damaged_row() -> None:
    """The arrays of headers may be compressed, and that is what is damaged."""
    statements = compose("outbox", COLUMNS)
    for name, text in statements.items():
        if name.endswith("_ids"):
            assert b"array_to_string" not in text
            assert b"array_to_string" in statements[name.removesuffix("_ids")]
