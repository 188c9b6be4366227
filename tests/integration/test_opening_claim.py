"""A transaction that opens with its claim: one round trip, and no promise less."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from threading import Event
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_outbox.consuming.outages import is_service_unavailable
from django_outbox.exceptions import ErrorSwallowed, TableMissing
from django_outbox.idempotence.once import Once
from django_outbox.models import ProcessedMessage
from django_outbox.postgres.opening_claim import open_with_claim
from tests.testapp.models import Effect

from .transactions import wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)

Work = Callable[[], object]


def note() -> None:
    Effect.objects.create(text="done")


def do(key: str = "a", work: Work = note, **options: Any) -> bool:
    """Run `work` once for the key; return whether it ran."""
    claim = Once(key, consumer="billing", opening_claim=open_with_claim, **options)
    with claim as run:
        if run.is_first:
            work()
        return run.is_first


def sent() -> str:
    """Return what this connection has sent last, as another one sees it."""
    other = connection.copy()
    with other.cursor() as cursor:
        pid = connection.connection.info.backend_pid
        cursor.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", [pid])
        (query,) = cursor.fetchone()
    other.close()
    return str(query)


def ask(statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def idle_timeout() -> str:
    return str(ask("SHOW idle_in_transaction_session_timeout"))


def test_three_statements_are_one_message_to_the_server() -> None:
    found: list[str] = []
    assert do(work=lambda: found.append(sent()), idle_timeout=60.0)
    (query,) = found
    assert query.startswith("BEGIN; SET LOCAL idle_in_transaction_session_timeout")
    assert "-- outbox: once\nINSERT INTO" in query


def test_a_repeat_has_no_effect() -> None:
    assert do("a")
    assert not do("a")
    assert do("b")
    assert Effect.objects.count() == 2


def test_a_block_that_fails_rolls_back_with_its_claim() -> None:
    def fail() -> None:
        note()
        raise LookupError

    with pytest.raises(LookupError):
        do(work=fail)
    assert not Effect.objects.exists()
    assert do()


def test_an_error_that_is_caught_inside_is_told() -> None:
    def swallow() -> None:
        note()
        with suppress(DatabaseError):
            ask("SELECT 1/0")

    with pytest.raises(ErrorSwallowed):
        do(work=swallow)
    assert not ProcessedMessage.objects.exists()


def test_a_block_may_have_savepoints() -> None:
    def work() -> None:
        with pytest.raises(DatabaseError), transaction.atomic():
            note()
            ask("SELECT 1/0")
        note()

    assert do(work=work)
    assert Effect.objects.count() == 1


def test_what_waits_for_the_commit_runs_after_it() -> None:
    seen: list[bool] = []

    def work() -> None:
        transaction.on_commit(lambda: seen.append(connection.in_atomic_block))

    assert do(work=work)
    assert seen == [False]


def test_the_time_out_ends_with_the_transaction() -> None:
    before, found = idle_timeout(), list[str]()
    assert do("a", lambda: found.append(idle_timeout()), idle_timeout=1.5)
    assert do("b", lambda: found.append(idle_timeout()))
    assert found == ["1500ms", before]
    assert idle_timeout() == before


@pytest.mark.parametrize(
    "key",
    ["it's", 'say "a"', "a\\' b", "100 %s %b %(key)s", "größe-€-\U0001f600", "$1"],
)
def test_each_key_is_stored_as_it_is(key: str) -> None:
    assert do(key)
    assert not do(key)
    assert ProcessedMessage.objects.get().key == key


def test_a_repeat_waits_for_the_first_to_end() -> None:
    is_open, may_end = Event(), Event()

    def hold() -> None:
        note()
        is_open.set()
        assert may_end.wait(30)

    def closing(work: Work) -> bool:
        try:
            return do(work=work)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(closing, hold)
        assert is_open.wait(30)
        second = pool.submit(closing, note)
        wait_until_blocked()
        may_end.set()
        assert first.result(30)
        assert not second.result(30)
    assert Effect.objects.count() == 1


@contextmanager
def watched() -> Iterator[None]:
    seen: list[str] = []

    def watch(execute: Any, sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(watch):
        yield
    assert any("outbox: once" in sql for sql in seen)


@contextmanager
def logged() -> Iterator[None]:
    with CaptureQueriesContext(connection) as queries:
        yield
    assert any("outbox: once" in query["sql"] for query in queries)


@contextmanager
def isolated() -> Iterator[None]:
    connection.ensure_connection()
    connection.connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    try:
        yield
    finally:
        connection.close()


@contextmanager
def begun() -> Iterator[None]:
    with transaction.atomic():
        ask("SELECT 1")
        yield


@contextmanager
def in_latin_9() -> Iterator[None]:
    ask("SELECT set_config('client_encoding', 'LATIN9', false)")
    try:
        yield
    finally:
        connection.close()


@pytest.mark.parametrize("circumstance", [watched, logged, isolated, begun, in_latin_9])
def test_a_claim_has_a_statement_of_its_own(
    circumstance: Callable[[], AbstractContextManager[None]],
) -> None:
    """Where a plain BEGIN would be wrong, or somebody watches Django's cursors."""
    found: list[str] = []

    def work() -> None:
        assert not sent().startswith("BEGIN")
        found.extend([ask("SHOW transaction_isolation"), idle_timeout()])
        note()

    with circumstance():
        assert do("größe", work, idle_timeout=1.5)
    is_serializable = circumstance is isolated
    isolation = "serializable" if is_serializable else "read committed"
    assert found == [isolation, "1500ms"]
    with nullcontext() if is_serializable else circumstance():
        assert not do("größe", work)


def test_a_missing_table_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessedMessage._meta, "db_table", "absent.outbox_processed")
    with pytest.raises(TableMissing, match="migrate"):
        do()
    monkeypatch.undo()
    assert do()


def test_an_error_is_that_of_django() -> None:
    """Its class and its SQLSTATE say whether a retry helps."""
    with psycopg.connect(**_address()) as other:
        other.execute("LOCK TABLE outbox_processed")
        ask("SELECT set_config('lock_timeout', '50ms', false)")
        with pytest.raises(OperationalError) as failed:
            do()
        connection.close()
    assert failed.value.__cause__.sqlstate == "55P03"  # type: ignore[union-attr]
    assert not is_service_unavailable(failed.value)
    assert do()


def test_a_lost_connection_is_told() -> None:
    connection.ensure_connection()
    pid = connection.connection.info.backend_pid
    with psycopg.connect(**_address(), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    with pytest.raises(DatabaseError) as lost:
        do()
    assert is_service_unavailable(lost.value)
    connection.close_if_unusable_or_obsolete()
    assert do()


def _address() -> dict[str, Any]:
    names = ("host", "port", "dbname", "user", "password")
    parameters = connection.get_connection_params()
    return {name: parameters[name] for name in names if name in parameters}
