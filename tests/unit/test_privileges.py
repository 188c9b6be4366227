"""The GRANT statements."""

from __future__ import annotations

import json

import pytest
from django.db import OperationalError

from django_outbox.management import grants_verb
from django_outbox.management.answer import Answer
from django_outbox.operations.grants import grants
from django_outbox.operations.needed_privileges import needed_privileges
from django_outbox.postgres.database_facts import Privilege
from django_outbox.postgres.outbox_schema import Schema
from django_outbox.postgres.statements import quoted
from django_outbox.settings.options import OutboxSettings

ROLES = {"app": "a", "harvester": "h", "consumer": "c", "operator": "a"}
READ_SCHEMA = "django_outbox.management.grants_verb.read_schema"


def test_only_roles_that_are_named_get_privileges() -> None:
    assert list(grants("outbox")) == []
    statements = list(grants("outbox", app="shop"))
    assert statements[0].startswith("GRANT INSERT (create_time, ")
    assert statements[0].endswith('ON "outbox" TO "shop";')
    assert all(statement.endswith('TO "shop";') for statement in statements)


def test_the_app_may_read_only_what_is_staged() -> None:
    selects = [s for s in grants("outbox", app="shop") if "SELECT" in s]
    assert [s.partition(" ON ")[2] for s in selects] == [
        '"outbox_staged" TO "shop";',
        '"outbox_series" TO "shop";',
    ]


def test_the_harvester_may_update_its_own_columns_only() -> None:
    statements = list(grants("outbox", harvester="h"))
    updates = [s for s in statements if "UPDATE" in s]
    assert updates == [
        'GRANT UPDATE (leader_id, attempts, last_error) ON "outbox" TO "h";',
        'GRANT UPDATE (state, closed_at) ON "outbox_series" TO "h";',
        'GRANT UPDATE (not_before) ON "outbox_staged" TO "h";',
    ]


def test_a_consumer_may_neither_forget_keys_nor_read_the_outbox() -> None:
    statements = list(grants("outbox", consumer="c"))
    assert not any("DELETE" in s or '"outbox"' in s for s in statements)


def test_every_name_has_the_schema_when_it_is_known() -> None:
    schema = Schema('Sales "2"', is_open=False)
    statements = list(grants("outbox", schema, **ROLES))
    usage, others = statements[:3], statements[3:]
    assert usage == [
        f'GRANT USAGE ON SCHEMA "Sales ""2""" TO "{role}";' for role in "ahc"
    ]
    assert len(others) == len(list(grants("outbox", **ROLES)))
    for statement in others:
        qualified = statement.count('"Sales ""2"""."outbox')
        assert qualified == statement.count('"outbox') > 0


def test_a_schema_that_is_open_to_all_needs_no_grant() -> None:
    schema = Schema("public", is_open=True)
    statements = list(grants("outbox", schema, app="shop"))
    assert statements[0].endswith('ON "public"."outbox" TO "shop";')
    assert not any("ON SCHEMA" in statement for statement in statements)


def printed(*, is_json: bool = False) -> list[str]:
    lines: list[str] = []
    answer = Answer(lines.append, is_json=is_json, database="default")
    roles = dict.fromkeys(("harvester", "consumer", "operator"))
    grants_verb.grants("default", {**roles, "app": "shop"}, answer)
    answer.finish()
    return lines


def test_without_an_answer_of_the_database_a_comment_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OperationalError("connection refused\nDROP TABLE outbox;")

    monkeypatch.setattr(READ_SCHEMA, refuse)
    first, second, *statements = printed()
    assert first == (
        "-- The database 'default' does not show the schema of the outbox: connection"
        " refused."
    )
    assert second == "-- Run these statements with the search_path of the outbox."
    assert statements == list(grants("outbox", app="shop"))
    (document,) = printed(is_json=True)
    assert json.loads(document) == {
        "database": "default",
        "schema": None,
        "statements": statements,
    }


def test_a_table_that_the_search_path_does_not_find_has_no_schema(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(READ_SCHEMA, lambda *_: None)
    first, _, *statements = printed()
    assert first.endswith(": its search_path has no table 'outbox'.")
    assert statements == list(grants("outbox", app="shop"))


def test_only_an_archive_needs_its_function() -> None:
    function = Privilege("_archive_tend", "EXECUTE", kind="function")
    assert function in needed_privileges(OutboxSettings(ARCHIVE=True))
    assert function not in needed_privileges(OutboxSettings(ARCHIVE=False))


def test_a_name_cannot_break_out_of_its_quotes() -> None:
    assert quoted('x"; drop table y; --') == '"x""; drop table y; --"'
