"""`stash()` on a real PostgreSQL: what is written, and what a rollback takes back."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import IntegrityError, connection, connections, models, transaction
from django.test import TestCase
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from django_outbox import (
    ConfigurationError,
    InvalidMessage,
    Message,
    NotInTransaction,
    astash,
    stash,
    stash_many,
)
from django_outbox.message.middleware import Middleware
from django_outbox.models import ConsumerOffset, OutboxRecord
from django_outbox.operations.grants import grants
from django_outbox.stashing.writing import MIN_COPY_ROWS
from tests.testapp.models import Order

from .transactions import begun, wait_until_blocked

MANY = 12_500
"""Messages that need three statements."""


def contents() -> list[tuple[str, str, str | None]]:
    """Topic, key and value of every row, in order."""
    rows = OutboxRecord.objects.order_by("id")
    return list(rows.values_list("kafka_topic", "kafka_key", "kafka_value"))


@pytest.mark.django_db
def test_a_message_is_written_with_all_it_has() -> None:
    message_id = stash(
        "orders",
        key="o-1",
        value={"total": 3},
        headers=[("trace", "a"), ("trace", "b")],
        partition=4,
    )
    row = OutboxRecord.objects.get()
    assert row.message_id == message_id
    assert isinstance(message_id, uuid.UUID)
    assert (row.kafka_topic, row.kafka_key, row.kafka_partition) == ("orders", "o-1", 4)
    assert (row.kafka_value, row.kafka_value_bytes) == ('{"total":3}', None)
    assert row.kafka_header_keys == ["trace", "trace"]
    assert row.kafka_header_values == ["a", "b"]
    assert (row.leader_id, row.attempts, row.last_error) == (None, 0, "")
    assert row.cluster_id == 0
    assert row.create_time is not None


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("value", "text", "raw"),
    [
        (None, None, None),
        ("plain 😀", "plain 😀", None),
        ("", "", None),
        (b"\x00\xff", None, b"\x00\xff"),
        (b"", None, b""),
        (bytearray(b"ab"), None, b"ab"),
        (memoryview(b"ab"), None, b"ab"),
        (0, "0", None),
        (False, "false", None),
        ([], "[]", None),
        ({"a": "ü"}, '{"a":"ü"}', None),
    ],
)
def test_each_kind_of_value_has_its_column(value: Any, text: Any, raw: Any) -> None:
    stash("orders", key="k", value=value)
    row = OutboxRecord.objects.get()
    found = row.kafka_value_bytes
    assert (row.kafka_value, None if found is None else bytes(found)) == (text, raw)


@pytest.mark.django_db
def test_text_that_looks_like_sql_or_a_placeholder_is_only_text() -> None:
    text = "'; DROP TABLE outbox; -- %s %(x)s {} \\ \" \n"
    stash("orders", key=text, value=text, headers={text: text})
    row = OutboxRecord.objects.get()
    assert row.kafka_key == row.kafka_value == text
    assert row.kafka_header_keys == row.kafka_header_values == [text]


@pytest.mark.django_db
def test_choices_of_a_model_field_can_name_topics_and_keys() -> None:
    class Topic(models.TextChoices):
        ORDERS = "orders"

    stash(Topic.ORDERS, key=Topic.ORDERS, value=Topic.ORDERS)
    assert contents() == [("orders", "orders", "orders")]


@pytest.mark.django_db(transaction=True)
def test_a_rollback_takes_the_message_back() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Order.objects.create(number="1")
        stash("orders", key="1", value=None)
        raise ZeroDivisionError
    assert (Order.objects.count(), contents()) == (0, [])


@pytest.mark.django_db(transaction=True)
def test_a_savepoint_takes_back_only_its_own_messages() -> None:
    with transaction.atomic():
        stash("orders", key="1", value=None)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            stash("orders", key="2", value=None)
            raise ZeroDivisionError
        stash("orders", key="3", value=None)
    assert contents() == [("orders", "1", None), ("orders", "3", None)]


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_nothing_is_written() -> None:
    with pytest.raises(NotInTransaction, match=r"No transaction\.atomic"):
        stash("orders", key="1", value=None)
    assert contents() == []


@pytest.mark.django_db
def test_in_another_kind_of_database_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "vendor", "sqlite")
    monkeypatch.setattr(connection, "display_name", "SQLite")
    with pytest.raises(ConfigurationError, match="'default' is SQLite; the outbox"):
        stash("orders", key="1", value=None)


@pytest.mark.django_db(transaction=True)
def test_switched_off_autocommit_is_no_transaction_block() -> None:
    """Django would not roll it back with the business rows after an error."""
    connection.set_autocommit(False)
    try:
        with pytest.raises(NotInTransaction):
            stash("orders", key="1", value=None)
    finally:
        connection.rollback()
        connection.set_autocommit(True)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_transaction_of_another_database_does_not_count() -> None:
    with (
        transaction.atomic(using="other"),
        pytest.raises(NotInTransaction, match=r"on 'other'.*pass using='other'"),
    ):
        stash("orders", key="1", value=None)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_using_writes_to_the_other_database() -> None:
    with transaction.atomic(using="other"):
        stash("orders", key="1", value=None, using="other")
        stash_many(
            [Message("orders", key="2", value=None)], using="other", ordered=True
        )
    assert contents() == []
    assert OutboxRecord.objects.using("other").count() == 2


@pytest.mark.django_db(databases=["default", "other"])
def test_the_routers_choose_the_database(settings: Settings) -> None:
    settings.DATABASE_ROUTERS = [_ToOther()]
    stash("orders", key="1", value=None)
    assert OutboxRecord.objects.using("other").count() == 1


class _ToOther:
    def db_for_write(self, model: type[models.Model], **hints: Any) -> str | None:
        return "other" if model is OutboxRecord else None


class InDjangosTestCase(TestCase):
    """Tests of a project call it without a transaction block of their own."""

    @classmethod
    def setUpTestData(cls) -> None:
        stash("orders", key="of all", value=None)

    def test_stash_works(self) -> None:
        stash("orders", key="of one", value=None)
        stash_many([Message("orders", key="of many", value=None)])
        assert [row[1] for row in contents()] == ["of all", "of one", "of many"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": "__consumer_offsets"},
        {"key": "k" * 256},
        {"value": "x" * 900_001},
        {"value": object()},
        {"headers": {"outbox-id": "1"}},
        {"partition": -1},
    ],
)
def test_a_message_that_breaks_a_limit_leaves_the_transaction_usable(
    arguments: dict[str, Any],
) -> None:
    """It is refused before the database sees it."""
    with pytest.raises(InvalidMessage):
        stash(**({"topic": "orders", "key": "1", "value": None} | arguments))
    stash("orders", key="2", value=None)
    assert len(contents()) == 1


@pytest.mark.django_db
def test_many_messages_keep_their_order_and_take_few_statements() -> None:
    messages = (Message("orders", key=str(n), value=n) for n in range(MANY))
    with CaptureQueriesContext(connection) as queries:
        message_ids = stash_many(messages)
    assert [row[1] for row in contents()] == [str(n) for n in range(MANY)]
    rows = OutboxRecord.objects.order_by("id")
    assert list(rows.values_list("message_id", flat=True)) == message_ids
    assert len([q for q in queries if "COPY" in q["sql"]]) == 3


@pytest.mark.django_db
def test_what_is_copied_is_what_an_insert_writes() -> None:
    odd = 'tab\tnewline\nbackslash\\N \U0001f600 "quoted" {braces}'
    messages = [
        Message("orders", key=odd, value=odd, headers={odd: odd}, partition=3),
        Message("orders", key="none", value=None),
        Message("orders", key="raw", value=b"\x00\xff\\"),
        Message("orders", key="empty", value="", headers={}),
    ]
    repeated = messages * 5
    stash_many(repeated)
    assert len(repeated) >= MIN_COPY_ROWS
    stash_many(messages)
    fields = (
        *("kafka_topic", "kafka_key", "kafka_value", "kafka_value_bytes"),
        *("kafka_header_keys", "kafka_header_values", "kafka_partition"),
    )
    rows = [
        tuple(bytes(v) if isinstance(v, memoryview) else v for v in row)
        for row in OutboxRecord.objects.order_by("id").values_list(*fields)
    ]

    assert rows[:4] == rows[-4:]
    assert rows == rows[:4] * 6
    assert rows[0][1] == odd


@pytest.mark.django_db
def test_a_few_messages_take_one_statement() -> None:
    with CaptureQueriesContext(connection) as queries:
        stash_many([Message("orders", key=str(n), value=None) for n in range(1000)])
    assert len(queries) == 1


@pytest.mark.django_db
def test_messages_may_be_made_of_rows_of_the_same_connection() -> None:
    stash_many(Message("orders", key=str(n), value=None) for n in range(MANY))
    rows = OutboxRecord.objects.order_by("id").iterator(chunk_size=100)
    stash_many(Message("copies", key=row.kafka_key, value=None) for row in rows)
    copies = OutboxRecord.objects.filter(kafka_topic="copies").order_by("id")
    assert [row.kafka_key for row in copies] == [str(n) for n in range(MANY)]


@pytest.mark.django_db
def test_no_message_is_no_statement() -> None:
    with CaptureQueriesContext(connection) as queries:
        assert stash_many([]) == []
    assert len(queries) == 0


@pytest.mark.django_db
def test_large_values_are_spread_over_statements() -> None:
    with CaptureQueriesContext(connection) as queries:
        stash_many(Message("t", key="k", value="x" * 800_000) for _ in range(11))
    inserts = [len(q["sql"]) for q in queries if "INSERT" in q["sql"]]
    assert len(inserts) == 3
    assert max(inserts) < 5_000_000


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("count", [1, MIN_COPY_ROWS - 1, MIN_COPY_ROWS, MANY])
def test_many_are_refused_in_a_transaction_that_can_only_roll_back(count: int) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            stash_many(Message("t", key="k", value=None) for _ in range(count))


@pytest.mark.django_db
def test_when_one_of_many_is_refused_none_is_written() -> None:
    """Also not those of an earlier statement, if the caller goes on."""

    def messages() -> Iterator[Message]:
        yield from (Message("orders", key=str(n), value=None) for n in range(MANY))
        yield Message("orders", key="k" * 256, value=None)

    with pytest.raises(InvalidMessage):
        stash_many(messages())
    assert contents() == []


@pytest.mark.django_db
def test_values_of_different_kinds_fit_into_one_statement() -> None:
    stash_many(
        [
            Message("t", key="1", value=None),
            Message("t", key="2", value="text", headers={"a": "b"}),
            Message("t", key="3", value=b"raw", partition=1),
        ]
    )
    assert [row[2] for row in contents()] == [None, "text", None]


@pytest.mark.django_db(transaction=True)
def test_from_async_code_it_joins_the_transaction_of_djangos_thread() -> None:
    async def write() -> None:
        block = transaction.atomic()
        await sync_to_async(block.__enter__)()
        await astash("orders", key="1", value="a", ordered=True)
        await sync_to_async(block.__exit__)(None, None, None)
        with pytest.raises(NotInTransaction):
            await astash("orders", key="2", value=None)
        await sync_to_async(connections.close_all)()

    asyncio.run(write())
    assert contents() == [("orders", "1", "a")]


@pytest.mark.django_db(transaction=True)
def test_stash_in_async_code_says_what_to_call_instead() -> None:
    async def write() -> None:
        stash("orders", key="1", value=None)

    with transaction.atomic(), pytest.raises(NotInTransaction, match="await astash"):
        asyncio.run(write())
    assert contents() == []


@pytest.mark.django_db(transaction=True)
def test_ordered_writers_of_one_key_wait_for_each_other() -> None:
    """The second gets its id after the first has committed."""
    let_one_wait("k", "k")
    assert [row[2] for row in contents()] == ["first", "second"]


def let_one_wait(first_key: str, second_key: str) -> None:
    """Fail unless the second writer waits until the first has committed."""
    with begun() as first, begun() as second:
        first.do(stash, "orders", key=first_key, value="first", ordered=True)
        pending = second.submit(
            stash, "orders", key=second_key, value="second", ordered=True
        )
        wait_until_blocked()
        assert not pending.done()
        first.commit()
        pending.result(timeout=10)
        second.commit()


class OneKey(Middleware):
    """Gives all messages one key."""

    def stash(self, message: Message) -> Message:
        message.key = "one"
        return message


@pytest.mark.django_db(transaction=True)
def test_the_order_is_that_of_the_keys_that_are_written(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {
        **settings.DJANGO_OUTBOX,
        "MIDDLEWARE": [f"{__name__}.OneKey"],
    }
    let_one_wait("a", "b")


@pytest.mark.django_db(transaction=True)
def test_ordered_writers_of_different_keys_do_not_wait() -> None:
    with begun() as first, begun() as second:
        first.do(stash, "orders", key="k", value="first", ordered=True)
        second.do(stash, "orders", key="another", value="second", ordered=True)
        second.do(stash, "payments", key="k", value="second", ordered=True)
        second.commit()
        first.commit()
    assert [row[2] for row in contents()] == ["first", "second", "second"]


@pytest.mark.django_db(transaction=True)
def test_without_ordered_writers_of_one_key_do_not_wait() -> None:
    with begun() as first, begun() as second:
        first.do(stash, "orders", key="k", value="first")
        second.do(stash, "orders", key="k", value="second")
        second.commit()
        first.commit()
    assert len(contents()) == 2


@pytest.mark.django_db(transaction=True)
def test_ordered_batches_that_share_keys_do_not_deadlock() -> None:
    keys = [str(n) for n in range(50)]

    def write(order: list[str]) -> None:
        try:
            for _ in range(20):
                with transaction.atomic():
                    stash_many(
                        [Message("t", key=k, value=None) for k in order], ordered=True
                    )
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(write, order) for order in (keys, keys[::-1])]
        for job in jobs:
            job.result(timeout=60)
    assert len(contents()) == 2 * 20 * 50


def test_plain_sql_can_take_the_same_lock(postgres: psycopg.Connection) -> None:
    """docs/concepts/writing.md tells writers in other languages how."""
    with begun() as python:
        with postgres.transaction():
            postgres.execute(
                "SELECT pg_advisory_xact_lock("
                "hashtextextended('k', hashtextextended('orders', 0)))"
            )
            pending = python.submit(stash, "orders", key="k", value=None, ordered=True)
            wait_until_blocked()
            assert not pending.done()
        pending.result(timeout=10)
        python.commit()


@pytest.mark.django_db
def test_the_sql_of_the_page_on_writing_works() -> None:
    page = Path(__file__).resolve().parents[2] / "docs/concepts/writing.md"
    statements = re.findall(r"```sql\n(.+?)```", page.read_text("utf-8"), re.DOTALL)
    assert len(statements) == 3
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    assert contents() == [("orders", "42", '{"status":"paid"}')]


@pytest.mark.django_db
def test_the_app_needs_no_more_than_its_grants() -> None:
    """Not even to read what it wrote."""
    _act_as("app")
    stash("orders", key="1", value={"a": 1}, headers={"a": "b"}, ordered=True)
    stash_many(
        [Message("orders", key="2", value=None), Message("orders", key="3", value=b"x")]
    )
    with connection.cursor() as cursor:
        cursor.execute("RESET ROLE")
    assert len(contents()) == 3


@pytest.mark.django_db
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM outbox",
        "DELETE FROM outbox",
        "UPDATE outbox SET leader_id = NULL",
        "INSERT INTO outbox (id, kafka_topic, kafka_key) VALUES (1, 't', 'k')",
        "UPDATE outbox_staged SET kafka_value = 'forged'",
        "DELETE FROM outbox_series",
    ],
)
def test_the_app_can_do_no_more_than_its_grants(statement: str) -> None:
    _act_as("app")
    with (
        pytest.raises(Exception, match="permission denied"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)


@pytest.mark.django_db
def test_the_operator_can_release_and_prune_under_its_grants() -> None:
    from datetime import timedelta

    from django_outbox.models import ArchivedRecord, ParkedRecord

    ParkedRecord.objects.create(
        id=7, kafka_topic="t", kafka_key="k", message_id=uuid.uuid4()
    )
    ArchivedRecord.objects.create(id=1, kafka_topic="t", kafka_key="k")
    _act_as("operator")
    assert ParkedRecord.objects.all().release() == 1
    assert sum(ArchivedRecord.objects.older_than(timedelta(0)).prune()) == 1
    assert OutboxRecord.objects.all().backlog().records == 1


@pytest.mark.django_db(transaction=True)
def test_bound_on_the_server_the_statements_work_too() -> None:
    """With Django's option server_side_binding, PostgreSQL sees parameters."""
    with _other_options(server_side_binding=True), transaction.atomic():
        stash("t", key="1", value={"a": 1}, headers={"a": "b"})
        stash("t", key="2", value=b"x", ordered=True)
        stash_many(
            (Message("t", key=str(n), value=None, partition=n) for n in range(MANY)),
            ordered=True,
        )
        assert len(contents()) == MANY + 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_bound_there", [False, True])
def test_an_offset_of_any_size_is_stored(*, is_bound_there: bool) -> None:
    """As a literal, 2147483647 + 1 is out of range."""
    offsets = [2**15 - 1, 2**15, 2**31 - 2, 2**31 - 1, 2**31, 2**62]
    with _other_options(server_side_binding=is_bound_there):
        stored, since = ConsumerOffset.objects.all(), 0
        for offset in offsets:
            assert stored.advance("g", "t", 0, offset, since=since, topic_id="x")
            since = offset + 1
            assert stored.positions("g") == {("t", 0): (since, "x")}


@pytest.mark.django_db
def test_a_database_error_shows_which_constraint_failed() -> None:
    """A value from a setting that the table does not know yet, for example."""
    with pytest.raises(IntegrityError, match="outbox_topic_name"), transaction.atomic():
        OutboxRecord.objects.create(kafka_topic="with space", kafka_key="k")


def _act_as(role: str) -> None:
    """Take the least privileges for the rest of the transaction."""
    name = f"outbox_test_{role}"
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE ROLE "{name}"')
        for statement in grants("outbox", **{role: name}):
            cursor.execute(statement)
        cursor.execute(f'SET LOCAL ROLE "{name}"')


@contextmanager
def _other_options(**options: Any) -> Iterator[None]:
    """Put another connection to the same database in the place of the usual one."""
    usual = connections["default"]
    changed = {**usual.settings_dict, "OPTIONS": options}
    connections["default"] = type(usual)(changed, "default")
    try:
        yield
    finally:
        connections["default"].close()
        connections["default"] = usual
