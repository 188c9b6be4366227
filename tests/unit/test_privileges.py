"""The GRANT statements."""

from __future__ import annotations

from django_outbox.operations.grants import grants
from django_outbox.postgres.statements import quoted


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


def test_a_name_cannot_break_out_of_its_quotes() -> None:
    assert quoted('x"; drop table y; --') == '"x""; drop table y; --"'
