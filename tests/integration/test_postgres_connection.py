"""The connection to a real Postgres, and to what only looks like one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest

from django_outbox.clock import boottime
from django_outbox.exceptions import ConfigurationError, DatabaseUnavailable
from django_outbox.message.record import Sweep
from django_outbox.postgres import connection as connection_module
from django_outbox.postgres import unmarked_table as unmarked_table_module
from django_outbox.postgres.connection import Database, Limits, params_of
from django_outbox.postgres.marked_table import PostgresOutbox
from django_outbox.postgres.statements import queries
from django_outbox.postgres.unmarked_table import UnmarkedOutbox
from django_outbox.relay.memory_marks import MemoryMarks
from tests.unit.samples import record
from tests.waiting import eventually

ME = "11111111-1111-4111-8111-111111111111"
NEXT = "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database({"conninfo": database_url})
    yield database
    database.close()


def ping(database: Database) -> None:
    """Run a statement that needs no table."""
    with database.session() as connection:
        connection.execute("SELECT 1")


@pytest.fixture
def pooler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer by another server process than at connect: what a pooler looks like."""
    pooled = {**queries(), "backend": "SELECT 0"}
    monkeypatch.setattr(connection_module, "queries", lambda: pooled)


@pytest.fixture(params=[False, True])
def is_pooled(request: pytest.FixtureRequest) -> bool:
    """Whether a pooler is there; a test that asks for it runs both ways."""
    if request.param:
        request.getfixturevalue("pooler")
    return bool(request.param)


def test_a_statement_that_takes_too_long_makes_the_call_uncertain(
    database_url: str,
) -> None:
    limits = Limits(statement=0.2)
    database = Database({"conninfo": database_url}, limits=limits)
    with (
        pytest.raises(DatabaseUnavailable, match="statement timeout"),
        database.session() as connection,
    ):
        connection.execute("SELECT pg_sleep(10)")

    # The session is as it was: it would tell of a failover.
    with database.session() as again:
        assert again is connection
    database.close()


def test_an_idle_session_is_kept(database_url: str) -> None:
    """Whatever the role's own time-out for idle sessions is."""
    options = {"conninfo": database_url, "options": "-c idle_session_timeout=100ms"}
    database = Database(options)
    with database.session() as connection:
        row = connection.execute("SHOW idle_session_timeout").fetchone()
    assert row == ("0",)
    database.close()


def test_no_page_is_compiled(database_url: str) -> None:
    """Sorts are off, which up to PostgreSQL 17 makes a plan look expensive."""
    database = Database({"conninfo": database_url, "options": "-c jit=on"})
    with database.session() as connection:
        assert connection.execute("SHOW jit").fetchone() == ("off",)
    database.close()


def test_no_server_makes_the_call_uncertain() -> None:
    database = Database({"host": "127.0.0.1", "port": 1, "password": "hidden"})

    with pytest.raises(DatabaseUnavailable) as caught:
        ping(database)

    assert "hidden" not in str(caught.value)


def test_a_server_that_has_become_a_standby_is_left_for_another(
    database_url: str,
) -> None:
    options = "-c default_transaction_read_only=on"
    database = Database({"conninfo": database_url, "options": options})

    with pytest.raises(DatabaseUnavailable, match="read-only"):
        PostgresOutbox(database).mark(ME, limit=10)

    assert database._connection is None


def test_names_itself_and_watches_over_its_peer(database: Database) -> None:
    with database.session() as connection:
        found = connection.info.get_parameters()
        row = connection.execute("SHOW statement_timeout").fetchone()

    assert row == ("5s",)
    assert found["application_name"] == "django-outbox"
    assert found["connect_timeout"] == "3"
    assert found["keepalives_idle"] == "2"
    assert found["keepalives_interval"] == "1"
    assert found["keepalives_count"] == "2"
    assert found["tcp_user_timeout"] == "3333"


def test_takes_the_parameters_of_djangos_own_connection(database_url: str) -> None:
    from django.db import connection as django_connection

    database = Database(django_connection.get_connection_params())

    ping(database)
    database.close()


def test_how_to_connect_is_asked_each_time(database_url: str) -> None:
    """A password may be a token that lives for minutes; its maker may be away."""
    told: list[Any] = [{"conninfo": database_url}]

    def params() -> Mapping[str, Any]:
        if isinstance(told[-1], Exception):
            raise told[-1]
        return dict(told[-1])

    database = Database(params)
    ping(database)
    database.close()
    told.append({"host": "127.0.0.1", "port": 1})
    with pytest.raises(DatabaseUnavailable, match="port 1"):
        ping(database)
    told.append(LookupError("no token"))
    with pytest.raises(DatabaseUnavailable, match="LookupError: no token"):
        ping(database)
    told.append(told[0])
    ping(database)
    database.close()


def test_a_token_service_that_is_away_at_start_is_waited_for(
    database_url: str,
) -> None:
    told: list[Any] = [LookupError("no token")]

    def params() -> Mapping[str, Any]:
        if isinstance(told[-1], Exception):
            raise told[-1]
        return dict(told[-1])

    database = Database(params)
    with pytest.raises(DatabaseUnavailable, match="LookupError: no token"):
        ping(database)
    told.append({"conninfo": database_url, "assume_role": "pg_monitor"})
    with database.session() as connection:
        row = connection.execute("SELECT current_user").fetchone()
    database.close()

    assert row == ("pg_monitor",)


def test_a_role_that_is_missing_is_waited_for(
    database_url: str,
    postgres: psycopg.Connection,
    *,
    is_pooled: bool,
) -> None:
    """A connection without its role and its limits is never used."""
    role = f"assumed_{uuid4().hex}"
    database = Database(
        {"conninfo": database_url, "assume_role": role}, application_name="no role"
    )
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable, match=f'role "{role}" does not exist'):
            ping(database)
        end_of(postgres, "no role")

    postgres.execute(f"CREATE ROLE {role}")  # type: ignore[call-overload]
    with database.session() as connection:
        assert connection.execute("SELECT current_user").fetchone() == (role,)
        assert connection.execute("SHOW statement_timeout").fetchone() == ("5s",)
    database.close()
    postgres.execute(f"DROP ROLE {role}")  # type: ignore[call-overload]


def test_acts_as_the_role_of_djangos_connection(
    database_url: str, *, is_pooled: bool
) -> None:
    role = f"assumed_{uuid4().hex}"
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role}")  # type: ignore[call-overload]
        database = Database({"conninfo": database_url, "assume_role": role})
        with database.session() as connection:
            assert connection.execute("SELECT current_user").fetchone() == (role,)
        database.close()
        admin.execute(f"DROP ROLE {role}")  # type: ignore[call-overload]


def test_leaves_a_parent_process_its_connection(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.session() as parents:
        pass
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)

    with database.session() as childs:
        assert childs is not parents
    database.close()

    assert not parents.closed
    monkeypatch.undo()
    assert parents.execute("SELECT 1").fetchone() == (1,)
    connection_module._inherited.remove(parents)
    parents.close()


def test_behind_a_pooler_limits_end_with_their_transaction(
    database_url: str, pooler: None
) -> None:
    database = Database(
        {"conninfo": database_url}, limits=Limits(statement=0.2, lock=0.1)
    )

    with database.session() as connection:
        inside = connection.execute("SHOW statement_timeout").fetchone()
    outside = connection.execute("SHOW statement_timeout").fetchone()
    with (
        pytest.raises(DatabaseUnavailable, match="statement timeout"),
        database.session() as connection,
    ):
        connection.execute("SELECT pg_sleep(10)")

    assert inside == ("200ms",)
    assert outside == ("0",)
    database.close()


def test_parameters_that_libpq_does_not_know_are_named_without_values() -> None:
    with pytest.raises(ConfigurationError, match="sslmodus") as caught:
        Database({"host": "h", "sslmodus": "verify-full"})
    assert "verify-full" not in str(caught.value)

    with pytest.raises(ConfigurationError) as caught:
        Database({"conninfo": "host=h password=top secret"})
    assert "secret" not in str(caught.value)


def test_wrong_parameters_of_a_django_connection_are_refused_when_it_connects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from django.db import connection as django_connection

    database = Database(params_of(django_connection))
    options = {"sslmodus": "verify-full"}
    with monkeypatch.context() as patch:
        patch.setitem(django_connection.settings_dict, "OPTIONS", options)
        with pytest.raises(ConfigurationError, match="sslmodus"):
            ping(database)
    monkeypatch.setitem(django_connection.settings_dict, "NAME", "")
    with pytest.raises(ConfigurationError, match="supply the NAME"):
        ping(database)


def test_a_database_without_a_server_is_unavailable() -> None:
    with pytest.raises(DatabaseUnavailable, match="port 1"):
        ping(Database({"host": "127.0.0.1", "port": 1}))


def test_nobody_waits_forever_for_a_silent_server(
    database_url: str,
    postgres: psycopg.Connection,
    *,
    is_pooled: bool,
) -> None:
    """Behind a pooler TCP stays well, whatever has become of the server."""
    caught: list[float] = []
    database = Database(
        {"conninfo": database_url},
        application_name="silent",
        limits=Limits(statement=0.25, peer=0.25),
    )
    # The server's own limit is not to be what ends it.
    database._limits = {**database._limits, "statement_timeout": "30s"}

    def ask() -> None:
        with (
            pytest.raises(DatabaseUnavailable, match=r"no answer for 0\.5 s") as info,
            database.session() as connection,
        ):
            connection.execute("SELECT pg_sleep(20)")
        caught.append(info.value.waited)
        ping(database)

    began = time.monotonic()
    ask()
    database.close()
    # It sleeps on, although nobody listens.
    end_of(postgres, "silent", "SELECT pg_terminate_backend(pid)")

    assert time.monotonic() - began < 10.0
    assert caught[0] >= 0.5


def test_nobody_waits_forever_for_a_connection(
    database_url: str,
    postgres: psycopg.Connection,
) -> None:
    """What looks names up, or makes a token, has no limit of its own."""
    may_go_on = threading.Event()

    def params() -> Mapping[str, Any]:
        assert may_go_on.wait(30.0)
        return {"conninfo": database_url}

    def ask() -> None:
        with pytest.raises(DatabaseUnavailable, match=r"no connection after 0\.3 s"):
            ping(slow)
        may_go_on.set()
        ping(slow)

    slow = Database(params, application_name="too late", limits=Limits(reach=0.3))
    ask()
    slow.close()

    # The connection that came too late, too.
    end_of(postgres, "too late")


@pytest.mark.parametrize("deadline", [1.0, 3.0, 10.0, 60.0])
def test_all_limits_fit_into_the_deadline(deadline: float) -> None:
    limits = Limits.within(deadline)

    assert limits.statement + limits.peer < deadline
    assert limits.lock < limits.statement
    assert max(limits.connect, limits.reach) <= deadline
    assert Limits.within(10.0) == Limits()


def test_pages_are_kept_by_the_server_and_sweeps_are_not(database: Database) -> None:
    outbox = UnmarkedOutbox(database)
    for _ in range(10):
        outbox.page(0, (), limit=1)
        outbox.sweep(0, Sweep(known=frozenset(), passed=()), limit=1)

    assert kept(database) == ["page_after"]


def test_a_purge_of_few_rows_or_of_a_run_is_kept_and_a_long_list_is_not(
    database: Database,
) -> None:
    outbox = UnmarkedOutbox(database)
    outbox.purge(ME, [record(10 * n) for n in range(1, 202)])
    after_many = kept(database)
    outbox.purge(ME, [record(1)])
    after_few = kept(database)
    outbox.purge(ME, [record(n) for n in range(1, 202)])

    assert (after_many, after_few) == ([], ["purge"])
    assert kept(database) == ["purge", "purge"]


def test_behind_a_pooler_each_page_comes_with_its_timeline(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_pooled: bool,
) -> None:
    """A direct connection does not outlive its timeline, and is not asked."""
    table = UnmarkedOutbox(database)
    outbox = MemoryMarks(table, clock=boottime, timeline=table.pooled_timeline)
    outbox.mark(ME, limit=1)
    promoted = {**queries(), "timeline": "SELECT 'promoted'"}
    monkeypatch.setattr(unmarked_table_module, "queries", lambda: promoted)

    if not is_pooled:
        outbox.mark(ME, limit=1)
        return
    with pytest.raises(DatabaseUnavailable, match="another timeline"):
        outbox.mark(ME, limit=1)
    outbox.begin()
    assert outbox.mark(NEXT, limit=1) == []


def test_behind_a_pooler_nothing_is_kept(database: Database, pooler: None) -> None:
    UnmarkedOutbox(database).page(0, (), limit=1)

    assert database.is_pooled
    assert kept(database) == []


def end_of(
    postgres: psycopg.Connection, name: str, what: LiteralString = "SELECT"
) -> None:
    """Wait until no session has this name; each look may do something to those left."""
    text = f"{what} FROM pg_stat_activity WHERE application_name = '{name}'"
    eventually(lambda: not postgres.execute(text).rowcount, what=f"the end of {name}")


def kept(database: Database) -> list[str]:
    """Name the statements that the server keeps for this connection."""
    with database.session() as connection:
        rows = connection.execute("SELECT statement FROM pg_prepared_statements")
        texts = [text for (text,) in rows]
    return [text.split("\n")[0].removeprefix("-- outbox: ") for text in texts]
