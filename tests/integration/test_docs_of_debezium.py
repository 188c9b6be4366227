"""The how-to on moving from Debezium: its view takes what the old code writes."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest
from django.db import connection

from django_outbox.operations.grants import grants
from django_outbox.testing import OutboxFixture

PAGE = (Path(__file__).parents[2] / "docs/howto/from-debezium.md").read_text("utf-8")
(SQL,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)

TABLE = """
CREATE TABLE outboxevent (
    id uuid PRIMARY KEY, aggregatetype varchar(255), aggregateid varchar(255),
    type varchar(255), payload jsonb
)"""
INSERT = "INSERT INTO outboxevent VALUES (%s, 'order', '17', 'OrderPlaced', %s)"
ROW = "SELECT id, aggregatetype, aggregateid, type, payload ->> 'a' FROM outboxevent"


@pytest.mark.django_db
def test_the_old_statements_write_to_the_outbox(outbox: OutboxFixture) -> None:
    first, second = uuid4(), uuid4()
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.execute("CREATE ROLE shop_of_debezium")
        for statement in grants("outbox", app="shop_of_debezium"):
            cursor.execute(statement)
        cursor.execute(SQL.replace(" TO shop;", " TO shop_of_debezium;"))
        cursor.execute("SET ROLE shop_of_debezium")
        cursor.execute(INSERT, [first, '{"a": 1}'])
        cursor.execute(ROW)
        assert cursor.fetchall() == [(first, "order", "17", "OrderPlaced", "1")]
        cursor.execute(INSERT, [second, '{"a": 2}'])
        cursor.execute("DELETE FROM outboxevent WHERE id = %s", [second])
        cursor.execute("RESET ROLE")

    messages = outbox.drain()
    assert [message.message_id for message in messages] == [str(first), str(second)]
    for message, number in zip(messages, (first, second), strict=True):
        assert message.topic == "outbox.event.order"
        assert message.key_text() == "17"
        assert message.header("id") == str(number)
        assert message.header("eventType") == "OrderPlaced"
    assert [message.json() for message in messages] == [{"a": 1}, {"a": 2}]
