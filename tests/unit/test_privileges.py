"""The GRANT statements."""

from __future__ import annotations

from django_outbox.privileges import grants, quoted


def test_only_roles_that_are_named_get_privileges() -> None:
    assert list(grants("outbox")) == []
    (statement,) = grants("outbox", app="shop")
    assert statement.startswith("GRANT INSERT (create_time, ")
    assert statement.endswith('ON "outbox" TO "shop";')


def test_the_harvester_may_update_its_own_columns_only() -> None:
    statements = list(grants("outbox", harvester="h"))
    (update,) = [s for s in statements if "UPDATE" in s]
    assert update == (
        'GRANT UPDATE (leader_id, attempts, last_error) ON "outbox" TO "h";'
    )


def test_a_name_cannot_break_out_of_its_quotes() -> None:
    assert quoted('x"; drop table y; --') == '"x""; drop table y; --"'
