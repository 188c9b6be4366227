"""
Standalone mode as a sidecar of an app in any language.

The table has goharvest's columns and no others, the rows come by plain SQL,
and no process has a Django project.
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from confluent_kafka import Message
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.processes import ROOT, Process, Processes
from tests.services import Topics, text_of
from tests.waiting import eventually

PAGE = ROOT / "docs" / "howto" / "standalone.md"

TABLE = sql.Identifier("Sidecar", "outbox")

INSERT = sql.SQL(
    "INSERT INTO {} (create_time, kafka_topic, kafka_key, kafka_value,"
    " kafka_header_keys, kafka_header_values) VALUES (now(), %s, %s, %s, %s, %s)"
).format(TABLE)


@pytest.fixture
def schema(postgres: psycopg.Connection) -> Iterator[sql.Identifier]:
    """An empty schema whose name has a capital."""
    schema = sql.Identifier("Sidecar")
    postgres.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))
    postgres.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
    yield schema
    postgres.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(schema))


@pytest.fixture
def table(postgres: psycopg.Connection, schema: sql.Identifier) -> sql.Identifier:
    """A table with the columns and types of goharvest's own."""
    postgres.execute(
        sql.SQL(
            """
            CREATE TABLE {} (
                id bigserial PRIMARY KEY,
                create_time timestamptz NOT NULL,
                kafka_topic varchar(249) NOT NULL,
                kafka_key varchar(100) NOT NULL,
                kafka_value varchar(10000),
                kafka_header_keys text[] NOT NULL,
                kafka_header_values text[] NOT NULL,
                leader_id uuid
            )
            """
        ).format(TABLE)
    )
    return TABLE


@pytest.fixture
def file(tmp_path: Path, database_url: str, bootstrap_servers: str) -> Path:
    """A reaper.yaml in goharvest's keys."""
    server = conninfo_to_dict(database_url)
    keywords = ("host", "port", "user", "password", "dbname")
    source = " ".join(f"{keyword}={server.get(keyword, '')}" for keyword in keywords)
    group = f"reaper-{uuid4()}"
    path = tmp_path / "reaper.yaml"
    path.write_text(
        f"""
harvest:
  baseKafkaConfig:
    bootstrap.servers: {bootstrap_servers}
    session.timeout.ms: 3000
  producerKafkaConfig:
    compression.type: lz4
    delivery.timeout.ms: 10000
  leaderTopic: {group}
  leaderGroupID: {group}
  dataSource: {source} sslmode=prefer
  outboxTable: '"Sidecar".Outbox'
  name: sidecar
  limits:
    heartbeatTimeout: 1s
    minPollInterval: 200ms
    markQueryRecords: 7
    sendConcurrency: 4
logging:
  level: Info
""",
        "utf-8",
    )
    return path


@pytest.fixture
def reap(file: Path) -> Iterator[Callable[..., Process]]:
    """Start a process of standalone mode, which ends with the test at the latest."""
    unset = ("DJANGO_SETTINGS_MODULE", "DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS")
    environment = {name: v for name, v in os.environ.items() if name not in unset}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "django_outbox", "reap", "-f", str(file)]
    with Processes(environment) as processes:
        yield partial(processes.launch, "reaper", *command, "--log-format", "json")


def pump(
    connection: psycopg.Connection, topic: str, numbers: Sequence[int], *, keys: int
) -> None:
    """Insert records as goharvest's pump does, in transactions of a few."""
    for first in numbers[::5]:
        with connection.transaction():
            for number in range(first, min(first + 5, numbers[-1] + 1)):
                value = None if number % 10 == 9 else f"value-{number:x}"
                key = f"key-{number % keys:x}"
                headers = (["Seq"], [str(number)])
                connection.execute(INSERT, (topic, key, value, *headers))


def is_empty(connection: psycopg.Connection, table: sql.Identifier) -> bool:
    query = sql.SQL("SELECT count(*) FROM {}").format(table)
    return connection.execute(query).fetchone() == (0,)


def sequences(messages: Sequence[Message]) -> dict[bytes, list[int]]:
    """The header Seq of each key's messages, in the order of the log."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for message in messages:
        found[message.key() or b""].append(int(dict(headers(message))["Seq"]))
    return found


def headers(message: Message) -> list[tuple[str, str]]:
    pairs = message.headers() or []
    return [(name, text_of(value)) for name, value in pairs]


def test_rows_of_plain_sql_reach_kafka_in_order(
    reap: Callable[..., Process],
    postgres: psycopg.Connection,
    table: sql.Identifier,
    topics: Topics,
) -> None:
    """Each once, with the headers that consumers rely on; SIGTERM ends it with 0."""
    topic = topics.create(partitions=3)
    pump(postgres, topic, range(30), keys=4)
    process = reap()
    assert process.wait_for("ready")["name"] == "sidecar"
    leader_id = process.wait_for("leader_acquired")["leader_id"]
    assert UUID(leader_id)
    pump(postgres, topic, range(30, 60), keys=4)

    messages = topics.read(topic, at_least=60)
    assert sequences(messages) == {
        f"key-{key}".encode(): list(range(key, 60, 4)) for key in range(4)
    }
    by_number = {dict(headers(m))["Seq"]: m for m in messages}
    assert by_number["31"].value() == b"value-1f"
    assert by_number["59"].value() is None
    names = [name for name, _ in headers(by_number["31"])]
    assert names[0] == "Seq"
    assert sorted(names[1:]) == [
        "outbox-created-at",
        "outbox-id",
        "outbox-message-id",
        "outbox-source",
    ]
    assert len({dict(headers(m))["outbox-message-id"] for m in messages}) == 60
    eventually(lambda: is_empty(postgres, table), what="an empty table")

    process.terminate()
    assert process.exit_code() == 0, process.report()
    assert process.events[-1]["event"] == "stopped"
    assert process.output == []
    assert any("sendConcurrency has no effect" in line for line in process.log)


def test_a_table_without_an_identity_needs_names(
    reap: Callable[..., Process], table: sql.Identifier, file: Path
) -> None:
    text = re.sub(r"  leader(Topic|GroupID): .*\n", "", file.read_text("utf-8"))
    file.write_text(text, "utf-8")
    process = reap()

    assert process.exit_code() == 2
    (line,) = [line for line in process.log if not line.startswith("{")]
    assert "harvest.leaderTopic and harvest.leaderGroupID are not set" in line
    assert "Sidecar.outbox_identity" in line


def test_a_second_process_takes_over(
    reap: Callable[..., Process],
    postgres: psycopg.Connection,
    table: sql.Identifier,
    topics: Topics,
) -> None:
    """The group of the file is one election, without a duplicate at its handover."""
    topic = topics.create()
    first = reap("--name", "first")
    assert first.wait_for("leader_acquired")["name"] == "first"
    second = reap("--name", "second")
    second.wait_for("ready")
    pump(postgres, topic, range(10), keys=1)
    topics.read(topic, at_least=10)
    first.terminate()
    second.wait_for("leader_acquired")
    assert first.exit_code() == 0, first.report()
    pump(postgres, topic, range(10, 20), keys=1)
    messages = topics.read(topic, at_least=20)
    assert sequences(messages) == {b"key-0": list(range(20))}
    eventually(lambda: is_empty(postgres, table), what="an empty table")


def test_a_drain_ends_when_the_table_is_empty(
    reap: Callable[..., Process],
    postgres: psycopg.Connection,
    table: sql.Identifier,
    topics: Topics,
) -> None:
    """Alone, it needs no election either."""
    topic = topics.create()
    pump(postgres, topic, range(50), keys=5)
    process = reap("--drain", "--solo")
    assert process.exit_code() == 0, process.report()
    assert is_empty(postgres, table)
    assert len(topics.read(topic)) == 50


def test_the_sql_in_the_documentation_works(
    reap: Callable[..., Process],
    postgres: psycopg.Connection,
    schema: sql.Identifier,
    topics: Topics,
) -> None:
    """The table of the page takes the row of the page."""
    topic = topics.create()
    create, insert = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    postgres.execute(sql.SQL("SET search_path = {}").format(schema))
    postgres.execute(create)
    postgres.execute(insert.replace("'orders'", f"'{topic}'"))
    assert reap("--drain", "--solo").exit_code() == 0
    (message,) = topics.read(topic)
    assert (message.key(), message.value()) == (b"o-1", b'{"status": "placed"}')
    assert headers(message)[0] == ("trace", "4bf92f")
    assert is_empty(postgres, TABLE)


def test_a_wrong_file_ends_the_process_with_2(
    reap: Callable[..., Process], file: Path
) -> None:
    """One line on standard error, none on standard output."""
    file.write_text("harvest: {limits: {heartbeatTimeout: 5 s}}")
    process = reap()
    assert process.exit_code() == 2
    assert process.events == process.output == []
    assert process.log == [
        f"python -m django_outbox reap: {file}: harvest.limits.heartbeatTimeout: "
        "'5 s' is not a duration such as 500ms, 1s or 1m30s."
    ]
