"""The harvester's listener on a real PostgreSQL, and the whole way with NOTIFY."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import psycopg
import pytest
from django.db import transaction
from pytest_django import Settings

from django_outbox import stash
from django_outbox.harvester.harvester import Harvester
from django_outbox.message.channel import MAX_BYTES, channel_of
from django_outbox.postgres import connection as connection_module
from django_outbox.postgres.connection import Connection, Database
from django_outbox.postgres.listening import Listener
from django_outbox.postgres.statements import queries
from tests.waiting import eventually

from ..services import Topics
from .harvesting import PATIENCE, Witness, fast_options

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def notifying(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "NOTIFY": True}


@pytest.fixture
def database(database_url: str) -> Database:
    return Database({"conninfo": database_url}, application_name="outbox listen")


@contextmanager
def listening(
    database: Database, table: str = "outbox"
) -> Iterator[threading.Semaphore]:
    """Listen in another thread; the semaphore counts what was heard."""
    heard, is_over = threading.Semaphore(0), threading.Event()
    listener = Listener(database, table=table)
    thread = threading.Thread(target=listener.run, args=(heard.release, is_over))
    thread.start()
    try:
        yield heard
    finally:
        is_over.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def listeners(postgres: psycopg.Connection) -> int:
    """Count the connections that listen."""
    return postgres.execute(
        "SELECT FROM pg_stat_activity WHERE application_name LIKE 'outbox listen%'"
    ).rowcount


def hears(heard: threading.Semaphore) -> bool:
    return heard.acquire(timeout=PATIENCE)


@pytest.mark.usefixtures("notifying")
def test_it_hears_of_each_commit(database: Database) -> None:
    with listening(database) as heard:
        # It has begun to listen: what came before is to be looked for.
        assert hears(heard)
        for _ in range(3):
            with transaction.atomic():
                stash("orders", key="1", value=None)
            assert hears(heard)
        assert not heard.acquire(blocking=False)


@pytest.mark.usefixtures("notifying")
def test_a_table_in_a_schema_has_the_channel_that_writers_know(
    database: Database,
) -> None:
    with listening(database, table="public.outbox") as heard:
        assert hears(heard)
        with transaction.atomic():
            stash("orders", key="1", value=None)
        assert hears(heard)


def test_a_channel_fits_however_long_the_table_is_called(
    database: Database, postgres: psycopg.Connection
) -> None:
    table = 'ä"%' * 40
    assert len(channel_of(table).encode()) <= MAX_BYTES
    with listening(database, table=table) as heard:
        assert hears(heard)
        postgres.execute("SELECT pg_notify(%s, '')", [channel_of(table)])
        assert hears(heard)


def test_a_listener_that_was_cut_off_hears_again(
    database: Database, postgres: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), listening(database) as heard:
        assert hears(heard)
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'outbox listen'"
        )
        # It listens again: what came meanwhile is to be looked for.
        assert hears(heard)
        postgres.execute("SELECT pg_notify('outbox', '')")
        assert hears(heard)

    actions = [getattr(record, "action", "") for record in caplog.records]
    assert actions.count("database_lost") == 1
    assert actions.count("database_found") == 1


class Away(Database):
    """A server that is not there, and how often it was looked for."""

    tries = 0

    def _connected(self) -> Connection:
        self.tries += 1
        raise psycopg.OperationalError("it is away")


def test_a_server_that_is_away_is_told_once_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = Away({})
    with listening(away) as heard:
        eventually(lambda: away.tries >= 3)
        assert not heard.acquire(blocking=False)

    assert caplog.text.count("The connection that listens") == 1


def test_it_stops_at_once_and_hangs_up(
    database: Database, postgres: psycopg.Connection
) -> None:
    with listening(database) as heard:
        assert hears(heard)
        eventually(lambda: listeners(postgres) == 1)
        began = monotonic()

    assert monotonic() - began < 0.5
    eventually(lambda: not listeners(postgres))


def test_behind_a_pooler_it_says_so_and_hangs_up(
    database: Database,
    postgres: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Another server process than at connect: what a pooler looks like.
    pooled = {**queries(), "backend": "SELECT 0"}
    monkeypatch.setattr(connection_module, "queries", lambda: pooled)

    with listening(database) as heard:
        eventually(lambda: "does not work behind a pooler" in caplog.text)
        eventually(lambda: not listeners(postgres))
        assert not heard.acquire(blocking=False)

    assert caplog.text.count("NOTIFY does not work behind a pooler") == 1


@pytest.mark.usefixtures("notifying")
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_record_leaves_long_before_the_next_poll(
    bootstrap_servers: str,
    postgres: psycopg.Connection,
    topics: Topics,
    topic: str,
    delivery: str,
) -> None:
    options = fast_options(
        bootstrap_servers,
        NOTIFY=True,
        DELIVERY=delivery,
        POLL_INTERVAL=20.0,
        MIN_POLL_INTERVAL=20.0,
    )
    witness = Witness()
    with Harvester(options=options, observers=[witness]):
        witness.wait_for("leader_acquired")
        for number in range(1, 4):
            with transaction.atomic():
                stash(topic, key="key", value=str(number))
            assert len(topics.read(topic, at_least=number)) == number
        eventually(lambda: listeners(postgres) == 1)
    eventually(lambda: not listeners(postgres))


def test_without_the_setting_nobody_listens(
    bootstrap_servers: str, postgres: psycopg.Connection
) -> None:
    witness = Witness()
    with Harvester(options=fast_options(bootstrap_servers), observers=[witness]):
        witness.wait_for("ready")
        assert not listeners(postgres)
