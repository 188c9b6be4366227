"""The how-to on triggers: its SQL writes messages that the relay sends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.db import connection

from django_outbox.testing import OutboxFixture

PAGE = (Path(__file__).parents[2] / "docs/howto/triggers.md").read_text("utf-8")
(SQL,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.django_db
def test_every_change_of_a_row_is_a_message(outbox: OutboxFixture) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE shop_order (id bigint, status text)")
        cursor.execute(SQL)
        cursor.execute("INSERT INTO shop_order VALUES (1, 'placed'), (2, 'placed')")
        cursor.execute("UPDATE shop_order SET status = 'paid' WHERE id = 1")
        # As an import does that has a path of its own.
        cursor.execute("SET LOCAL search_path = pg_catalog")
        cursor.execute("DELETE FROM public.shop_order WHERE id = 2")
        cursor.execute("SET LOCAL search_path TO DEFAULT")

    found = [
        (
            message.key_text(),
            message.header("event"),
            None if message.value is None else message.json()["status"],
        )
        for message in outbox.drain()
    ]
    assert found == [
        ("1", "insert", "placed"),
        ("2", "insert", "placed"),
        ("1", "update", "paid"),
        ("2", "delete", None),
    ]
