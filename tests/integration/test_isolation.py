"""
One row never stops the others: rows that are locked, refused, or cannot be read.

With each relay, on a real database and a real broker: all other records are sent
once, by one leader, and the log names the row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

import psycopg
import pytest
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import ConnectionHandler
from psycopg.conninfo import make_conninfo

from django_outbox.exceptions import RowInvalid
from django_outbox.harvester.adapters import Adapters
from django_outbox.harvester.harvester import Harvester
from django_outbox.message.record import KeyToRead
from django_outbox.postgres.connection import Connection, Database
from django_outbox.postgres.takeover_sql import Scope
from django_outbox.postgres.unmarked_table import UnmarkedOutbox
from django_outbox.relay.ledger.committed_ids import CommittedIds, extended

from ..services import Topics, text_of
from ..waiting import eventually
from .harvesting import Witness, fast_options

KEYS: Final = 10
RECORDS: Final = 20
"""Of each key."""

RELAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "pipelined": {},
    "one-per-key": {"MAX_IN_FLIGHT_PER_KEY": 1},
    "marks-in-table": {"MARKS": "table"},
    "exactly-once": {"DELIVERY": "exactly-once"},
}


def insert(postgres: psycopg.Connection, topic: str) -> list[int]:
    """Write records of all keys in turn; return their ids."""
    rows = postgres.execute(
        "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value)"
        " SELECT %s, n %% %s, 'v' FROM generate_series(1, %s) AS n RETURNING id",
        [topic, KEYS, KEYS * RECORDS],
    ).fetchall()
    return [row[0] for row in rows]


def waiting(postgres: psycopg.Connection) -> list[int]:
    return [i for (i,) in postgres.execute("SELECT id FROM outbox ORDER BY id")]


def sent(topics: Topics, topic: str) -> list[int]:
    messages = topics.read(topic)
    return [int(text_of(dict(m.headers() or [])["outbox-id"])) for m in messages]


@contextmanager
def locked(database_url: str, row: int) -> Iterator[psycopg.Connection]:
    """Hold a lock on a row, as somebody does who corrects it in psql."""
    with psycopg.connect(database_url) as session:
        session.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [row])
        yield session


REFUSALS: Final = {
    "with an error": "RAISE EXCEPTION 'it is under audit'",
    "silently": "RETURN NULL",
}
"""What a trigger does that keeps a row."""


@contextmanager
def refused(postgres: psycopg.Connection, row: int, body: str) -> Iterator[None]:
    """Have a trigger that keeps a row in the table."""
    postgres.execute(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN {body}; END $$"
    )
    try:
        postgres.execute(
            "CREATE TRIGGER keep BEFORE DELETE ON outbox FOR EACH ROW"
            f" WHEN (old.id = {row}) EXECUTE FUNCTION keep()"
        )
        yield
    finally:
        postgres.execute("DROP FUNCTION keep CASCADE")


@contextmanager
def read_only(postgres: psycopg.Connection) -> Iterator[None]:
    """Refuse writes in all new sessions, as a database that fails over does."""
    name = postgres.info.dbname
    postgres.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = %s AND application_name LIKE 'outbox %%'",
            [name],
        )
        yield
    finally:
        postgres.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')


def wait_while_stuck(
    postgres: psycopg.Connection, witness: Witness, rest: set[int]
) -> None:
    """Wait until only these rows are left, and then for several meter readings."""
    eventually(lambda: set(waiting(postgres)) == rest)
    # More than the deadline after which a leader without a database resigns.
    readings = len(witness.events)
    witness.wait_until(lambda events: len(events) >= readings + 6)


def assert_led_once(witness: Witness) -> None:
    assert witness.kinds().count("leader_acquired") == 1
    assert "leader_refreshed" not in witness.kinds()


def is_serial(relay: str) -> bool:
    """Whether a key waits for a row of its own that cannot be settled."""
    return relay in {"one-per-key", "marks-in-table"}


def stuck_lines(caplog: pytest.LogCaptureFixture, row: int) -> list[str]:
    """Return the lines of the log that name a row which cannot be settled."""
    return [
        record.getMessage()
        for record in caplog.records
        if getattr(record, "action", "") == "settlement_stuck"
        and f"record {row}:" in record.getMessage()
    ]


@pytest.mark.parametrize("relay", RELAYS)
def test_a_locked_row_does_not_delay_others(
    postgres: psycopg.Connection,
    database_url: str,
    bootstrap_servers: str,
    topics: Topics,
    relay: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    topic, witness = topics.create(partitions=3), Witness()
    options = fast_options(bootstrap_servers, **RELAYS[relay], DATABASE_DEADLINE=2.0)
    ids = insert(postgres, topic)
    row = ids[KEYS * 2]
    rest = set(ids[KEYS * 2 :: KEYS]) if is_serial(relay) else {row}
    if relay == "marks-in-table":
        # The lock is there before any row of this key is marked.
        rest = set(ids[::KEYS])

    with Harvester(name="one", options=options, observers=[witness]):
        with locked(database_url, row):
            wait_while_stuck(postgres, witness, rest)
            later = insert(postgres, topic)
            if is_serial(relay):
                rest |= set(later[::KEYS])
            eventually(lambda: set(waiting(postgres)) == rest)
        eventually(lambda: not waiting(postgres))

    assert sorted(sent(topics, topic)) == [*ids, *later]
    assert_led_once(witness)
    if relay != "marks-in-table":
        assert len(stuck_lines(caplog, row)) == 1


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("relay", RELAYS)
def test_a_row_that_a_trigger_refuses_does_not_delay_others(
    postgres: psycopg.Connection,
    bootstrap_servers: str,
    topics: Topics,
    relay: str,
    refusal: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    topic, witness = topics.create(partitions=3), Witness()
    options = fast_options(bootstrap_servers, **RELAYS[relay], DATABASE_DEADLINE=2.0)
    ids = insert(postgres, topic)
    row = ids[KEYS * 2]
    rest = set(ids[KEYS * 2 :: KEYS]) if is_serial(relay) else {row}

    with Harvester(name="one", options=options, observers=[witness]):
        with refused(postgres, row, REFUSALS[refusal]):
            wait_while_stuck(postgres, witness, rest)
            assert set(waiting(postgres)) == rest
        eventually(lambda: not waiting(postgres))

    assert sorted(sent(topics, topic)) == ids
    assert_led_once(witness)
    (line,) = stuck_lines(caplog, row)
    assert ("it is under audit" in line) == (refusal == "with an error")


@pytest.mark.parametrize("relay", RELAYS)
def test_a_database_that_is_read_only_is_not_led(
    postgres: psycopg.Connection,
    bootstrap_servers: str,
    topics: Topics,
    relay: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    topic, witness = topics.create(), Witness()
    options = fast_options(bootstrap_servers, **RELAYS[relay])

    def obstacles() -> list[str]:
        return [line for line in caplog.messages if "read-only" in line]

    with ExitStack() as end:
        with read_only(postgres):
            ids = insert(postgres, topic)
            harvester = Harvester(name="one", options=options, observers=[witness])
            end.enter_context(harvester)
            eventually(obstacles)
            assert witness.kinds() == []
            assert waiting(postgres) == ids
            assert sent(topics, topic) == []
        eventually(lambda: not waiting(postgres))

    assert sorted(sent(topics, topic)) == ids
    (line,) = obstacles()
    assert line.startswith("one cannot join the leader group yet: transactions are")


@pytest.fixture
def ascii_url(database_url: str) -> Iterator[str]:
    """Return the address of a migrated database that takes any bytes for text."""
    name = "isolation_ascii"
    url = make_conninfo(database_url, dbname=name)
    server = connections["default"].settings_dict
    handler = ConnectionHandler({"default": {}, name: server | {"NAME": name}})
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(
            f"CREATE DATABASE {name} TEMPLATE template0"
            " ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
        )
        try:
            connections[name] = handler[name]
            executor = MigrationExecutor(handler[name])
            executor.migrate([("django_outbox", "0001_initial")])
            handler[name].close()
            yield url
        finally:
            del connections[name]
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("policy", ["park", "block-key"])
@pytest.mark.parametrize("relay", RELAYS)
def test_a_row_that_cannot_be_read_does_not_delay_others(
    ascii_url: str,
    bootstrap_servers: str,
    topics: Topics,
    relay: str,
    policy: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    topic, witness = topics.create(partitions=3), Witness()
    options = fast_options(
        bootstrap_servers,
        **RELAYS[relay],
        POISON_POLICY=policy,
        PARK_AFTER=1,
        RETRY_BACKOFF=0.1,
    )
    adapters = Adapters.real(
        options, {"conninfo": ascii_url}, name="one", table="outbox", solo=False
    )
    harvester = Harvester(
        name="one",
        options=options,
        adapters=adapters,
        observers=[witness],
        send=lambda _: 0,
    )
    with psycopg.connect(ascii_url, autocommit=True) as postgres:
        ids = insert(postgres, topic)
        row, key = ids[KEYS * 2], set(ids[KEYS * 2 :: KEYS])
        postgres.execute("SET client_encoding = 'SQL_ASCII'")
        postgres.execute(
            r"UPDATE outbox SET kafka_value = E'\xff\xfe' WHERE id = %s", [row]
        )
        with harvester:
            if policy == "block-key":
                eventually(lambda: set(waiting(postgres)) == key)
                later = insert(postgres, topic)
                key |= set(later[::KEYS])
                eventually(lambda: set(waiting(postgres)) == key)
                correct = "UPDATE outbox SET kafka_value = 'v' WHERE id = %s"
                postgres.execute(correct, [row])
                ids += later
            eventually(lambda: not waiting(postgres))
        parked = postgres.execute("SELECT id, last_error FROM outbox_parked").fetchall()

    expected = set(ids) - {row} if policy == "park" else set(ids)
    assert sorted(sent(topics, topic)) == sorted(expected)
    assert [number for number, _ in parked] == ([row] if policy == "park" else [])
    assert any(f"record {row} to {topic}: ROW_UNREADABLE" in m for m in caplog.messages)
    assert_led_once(witness)


def test_a_row_that_cannot_be_read_has_its_cluster_and_its_time(ascii_url: str) -> None:
    """A ledger of several clusters has the times of the records that it lists."""
    scope = Scope(this_cluster=1, clusters=3, maximum_delay=10.0)
    table = UnmarkedOutbox(Database({"conninfo": ascii_url}), scope=scope)
    with psycopg.connect(ascii_url, autocommit=True) as postgres:
        ids = insert(postgres, "t")
        postgres.execute("SET client_encoding = 'SQL_ASCII'")
        postgres.execute("UPDATE outbox SET cluster_id = 1")
        bad = r"UPDATE outbox SET kafka_value = E'\xff', kafka_key = {} WHERE id = %s"
        postgres.execute(bad.format("kafka_key"), [ids[0]])
        postgres.execute(bad.format(r"E'\xfe'"), [ids[1]])

    records = table.page(0, (), limit=1000)
    table.close()

    assert [record.id for record in records if record.header_keys] == ids[:2]
    assert {record.cluster_id for record in records} == {1}
    assert {record.created_at for record in records} == {records[-1].created_at}
    (committed,) = extended((), records, step=ids[1] - ids[0])
    assert records[0] in CommittedIds([committed])


def test_a_row_of_which_nothing_can_be_read_is_this_clusters(
    ascii_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = Scope(this_cluster=1, clusters=3, maximum_delay=10.0)
    table = UnmarkedOutbox(Database({"conninfo": ascii_url}), scope=scope)
    session = table._session

    def fail(name: str) -> AbstractContextManager[Connection]:
        if name.startswith("row"):
            raise RowInvalid
        return session(name)

    monkeypatch.setattr(table, "_session", fail)
    with psycopg.connect(ascii_url, autocommit=True) as postgres:
        (row, *_) = insert(postgres, "t")
        postgres.execute("SET client_encoding = 'SQL_ASCII'")
        bad = r"UPDATE outbox SET cluster_id = 1, kafka_value = E'\xff' WHERE id = %s"
        postgres.execute(bad, [row])

    (record,) = table.page(0, (), limit=1000)
    table.close()

    assert (record.id, record.key) == (row, f"row {row}")
    assert (record.cluster_id, record.created_at) == (1, "0")


def test_a_key_that_cannot_be_read_is_shown_with_escapes(ascii_url: str) -> None:
    table = UnmarkedOutbox(Database({"conninfo": ascii_url}))
    with psycopg.connect(ascii_url, autocommit=True) as postgres:
        ids = insert(postgres, "t")
        postgres.execute("SET client_encoding = 'SQL_ASCII'")
        bad = r"UPDATE outbox SET kafka_key = E'\xfe' WHERE id = ANY(%s)"
        postgres.execute(bad, [[ids[0], ids[7]]])

    records = table.page(0, (), limit=1000)
    of_keys = table.page(ids[-1], (), [KeyToRead(("t", r"\376"), 0)], limit=1000)
    purged = table.purge("", records)
    table.close()

    assert [record.id for record in records] == ids
    assert {r.id: r.key for r in records if r.header_keys} == {
        ids[0]: r"\376",
        ids[7]: r"\376",
    }
    assert of_keys == []
    assert purged == len(ids)
