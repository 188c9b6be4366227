"""`stash_at_commit()`: messages are written with the commit, or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_outbox import (
    ConfigurationError,
    InvalidMessage,
    Message,
    NotInTransaction,
    TableMissing,
    stash,
)
from django_outbox.contrib.late_ids import astash_at_commit, stash_at_commit
from django_outbox.contrib.postgresql.base import DatabaseWrapper
from django_outbox.models import OutboxRecord

from ..waiting import eventually

PAGE = (Path(__file__).parents[2] / "docs/howto/late-ids.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def late(transactional_db: None) -> Iterator[None]:
    """The database with the backend of the page."""
    usual = use_backend()
    yield
    connections["default"].close()
    connections["default"] = usual


def use_backend() -> Any:
    """Let this thread use the backend; return the connection that it had."""
    usual = connections["default"]
    engine = "django_outbox.contrib.postgresql"
    connections["default"] = DatabaseWrapper(
        usual.settings_dict | {"ENGINE": engine}, "default"
    )
    return usual


def message(key: str, **options: Any) -> Message:
    return Message("orders", key=key, value={"n": 1}, **options)


def keys() -> list[str]:
    return list(OutboxRecord.objects.order_by("id").values_list("kafka_key", flat=True))


def test_messages_are_written_with_the_commit_and_not_before(late: None) -> None:
    with transaction.atomic():
        stash_at_commit(message("1", headers={"v": "1"}, partition=2))
        stash("orders", key="2", value=None)
        stash_at_commit(message("3"))
        assert keys() == ["2"]
    assert keys() == ["2", "1", "3"]
    row = OutboxRecord.objects.get(kafka_key="1")
    assert (row.kafka_header_keys, row.kafka_header_values) == (["v"], ["1"])
    assert (row.kafka_value, row.kafka_partition) == ('{"n":1}', 2)


def test_all_messages_of_a_transaction_take_one_statement(late: None) -> None:
    for number in (3, 300):
        with CaptureQueriesContext(connection) as queries, transaction.atomic():
            for n in range(number):
                stash_at_commit(message(str(n)))
        # The statement of COPY is not among the queries that Django captures.
        written = [query for query in queries if "outbox: stash" in query["sql"]]
        assert len(written) <= 1
    assert OutboxRecord.objects.count() == 303


def test_a_savepoint_takes_its_messages_along(late: None) -> None:
    with transaction.atomic():
        stash_at_commit(message("1"))
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            stash_at_commit(message("lost"))
            with transaction.atomic():
                stash_at_commit(message("lost, too"))
            raise ZeroDivisionError
        with transaction.atomic():
            stash_at_commit(message("2"))
    assert keys() == ["1", "2"]


def test_a_savepoint_without_a_block_takes_its_messages_along(late: None) -> None:
    with transaction.atomic():
        first = transaction.savepoint()
        stash_at_commit(message("lost, with the first"))
        transaction.savepoint_rollback(first)
        stash_at_commit(message("1"))
        with transaction.atomic():
            stash_at_commit(message("2"))
            second = transaction.savepoint()
            transaction.on_commit(list)
            stash_at_commit(message("lost, with the second"))
            transaction.savepoint_rollback(second)
            stash_at_commit(message("3"))
            transaction.savepoint_commit(transaction.savepoint())
    assert keys() == ["1", "2", "3"]


@pytest.mark.parametrize("how", ["error", "set_rollback"])
def test_a_rolled_back_transaction_writes_nothing(late: None, how: str) -> None:
    with suppress(ZeroDivisionError), transaction.atomic():
        stash_at_commit(message("1"))
        if how == "error":
            raise ZeroDivisionError
        transaction.set_rollback(True)
    assert keys() == []
    with transaction.atomic():
        stash_at_commit(message("2"))
    assert keys() == ["2"]


def test_callbacks_after_the_commit_see_the_messages_in_their_order(late: None) -> None:
    seen: list[list[str]] = []
    with transaction.atomic():
        transaction.on_commit(lambda: seen.append(keys()))
        stash_at_commit(message("1"))
        transaction.on_commit(lambda: seen.append(keys()))
    assert seen == [["1"], ["1"]]


def test_an_invalid_message_is_an_error_of_the_call(late: None) -> None:
    with transaction.atomic():
        with pytest.raises(InvalidMessage, match=r"^key: "):
            stash_at_commit(message("1" * 256))
        stash_at_commit(message("1"))
    assert keys() == ["1"]


def test_what_is_passed_may_change_afterwards(late: None) -> None:
    value = {"status": "placed"}
    with transaction.atomic():
        stash_at_commit(Message("orders", key="1", value=value))
        value["status"] = "paid"
    assert OutboxRecord.objects.get().kafka_value == '{"status":"placed"}'


def test_an_error_of_the_writing_rolls_everything_back(late: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE business (n int)")
        cursor.execute("ALTER TABLE outbox RENAME TO away")
    try:
        with pytest.raises(TableMissing), transaction.atomic():
            connection.cursor().execute("INSERT INTO business VALUES (1)")
            stash_at_commit(message("1"))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE away RENAME TO outbox")
            cursor.execute("SELECT count(*) FROM business")
            assert cursor.fetchone() == (0,)
            cursor.execute("DROP TABLE business")
    with transaction.atomic():
        stash_at_commit(message("2"))
    assert keys() == ["2"]


def test_a_lost_connection_loses_all_or_nothing(late: None, database_url: str) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (pid,) = cursor.fetchone()
        stash_at_commit(message("1"))
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    assert keys() == []
    with transaction.atomic():
        stash_at_commit(message("2"))
    assert keys() == ["2"]


def test_locks_are_taken_at_the_commit(late: None) -> None:
    def other() -> None:
        try:
            with transaction.atomic():
                stash("orders", key="1", value="other", ordered=True)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        stash_at_commit(message("1"), ordered=True)
        pool.submit(other).result(timeout=60)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT FROM pg_locks "
                "WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            )
            assert cursor.rowcount == 0
    values = OutboxRecord.objects.order_by("id").values_list("kafka_value", flat=True)
    assert list(values) == ["other", '{"n":1}']


def test_the_commit_waits_for_the_lock_of_its_key(
    late: None, postgres: psycopg.Connection
) -> None:
    def other() -> None:
        use_backend()
        try:
            with transaction.atomic():
                stash_at_commit(message("1"), ordered=True)
        finally:
            connection.close()

    waiting = "SELECT FROM pg_stat_activity WHERE pg_blocking_pids(pid) <> '{}'"
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            stash("orders", key="1", value="first", ordered=True)
            second = pool.submit(other)
            eventually(
                lambda: postgres.execute(waiting).rowcount, what="a commit waits"
            )
            assert keys() == ["1"]
        second.result(timeout=60)
    values = OutboxRecord.objects.order_by("id").values_list("kafka_value", flat=True)
    assert list(values) == ["first", '{"n":1}']


def test_ids_follow_the_commits(late: None) -> None:
    def other() -> None:
        try:
            with transaction.atomic():
                stash("orders", key="other", value=None)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        stash_at_commit(message("late"))
        stash("orders", key="early", value=None)
        pool.submit(other).result(timeout=60)
    assert keys() == ["early", "other", "late"]


def test_outside_of_a_transaction_it_is_refused(late: None) -> None:
    with pytest.raises(NotInTransaction, match=r"stash_at_commit\(\)"):
        stash_at_commit(message("1"))


@pytest.mark.django_db
def test_another_backend_is_refused_with_the_next_step() -> None:
    with (
        transaction.atomic(),
        pytest.raises(ConfigurationError, match=r"backends.*contrib\.postgresql"),
    ):
        stash_at_commit(message("1"))


def test_a_test_that_captures_callbacks_sees_the_messages(
    late: None, django_capture_on_commit_callbacks: Any
) -> None:
    with transaction.atomic():
        with django_capture_on_commit_callbacks(execute=True) as callbacks:
            stash_at_commit(message("1"))
            assert keys() == []
        assert (keys(), len(callbacks)) == (["1"], 1)
        transaction.set_rollback(True)


def test_commits_without_atomic_write_too(late: None) -> None:
    transaction.set_autocommit(False)
    try:
        with transaction.atomic():
            stash_at_commit(message("1"))
        assert keys() == []
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert keys() == ["1"]


def test_the_async_twin_joins_the_transaction_of_its_thread(late: None) -> None:
    async def write() -> None:
        await astash_at_commit(message("1"))

    with transaction.atomic():
        async_to_sync(write)()
        assert keys() == []
    assert keys() == ["1"]


def test_the_page_does_what_it_says(late: None) -> None:
    settings: dict[str, Any] = {"DATABASES": {"default": {}}}
    exec(BLOCKS[0], settings)  # noqa: S102
    assert (
        settings["DATABASES"]["default"]["ENGINE"]
        == (connection.settings_dict["ENGINE"])
    )
    exec(BLOCKS[1], {})  # noqa: S102
