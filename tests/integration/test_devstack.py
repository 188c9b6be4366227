"""The devstack's own servers: they keep their data and their address."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, Producer

from django_outbox.devstack import Stack
from django_outbox.jars.resolver import default_cache
from tests.machine import IN_BACKGROUND
from tests.processes import Process
from tests.services import Topics
from tests.waiting import eventually

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def table(private_services: Stack) -> str:
    """A table of one committed row."""
    with psycopg.connect(private_services.database_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS id")
    return "kept"


@pytest.mark.parametrize("fault", ["stop", "kill"])
def test_postgres_comes_back_with_its_data_at_its_address(
    private_services: Stack, table: str, fault: str
) -> None:
    getattr(private_services.postgres, fault)()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(private_services.database_url)
    private_services.postgres.start()
    with psycopg.connect(private_services.database_url) as connection:
        assert connection.execute("SELECT id FROM kept").fetchall() == [(1,)]


def test_postgres_comes_back_after_a_crash_in_the_middle_of_work(
    private_services: Stack,
) -> None:
    with closing(psycopg.connect(private_services.database_url)) as busy:
        # A statement that never looks whether its server is still there.
        query = "DO 'BEGIN LOOP END LOOP; END'"
        busy.pgconn.send_query(query.encode())
        private_services.postgres.kill()
        private_services.postgres.start()
    with psycopg.connect(private_services.database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_postgres_allows_what_the_tests_need(private_services: Stack) -> None:
    with psycopg.connect(private_services.database_url) as connection:
        assert connection.execute("SHOW max_connections").fetchone() == ("200",)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        assert connection.execute("SHOW is_superuser").fetchone() == ("on",)


def test_kafka_has_the_group_protocol_of_a_new_cluster(
    private_services: Stack,
) -> None:
    """A broker whose folder Kafka's own tool did not prepare has no features."""
    servers = private_services.bootstrap_servers
    topic = Topics(servers).create()
    config = {"bootstrap.servers": servers, "group.id": topic}
    with closing(Consumer({**config, "group.protocol": "consumer"})) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: [consumer.poll(0.1)] and consumer.assignment())


@pytest.mark.parametrize("fault", ["stop", "kill"])
def test_kafka_comes_back_with_its_records_at_its_address(
    private_services: Stack, fault: str
) -> None:
    servers = private_services.bootstrap_servers
    topic = Topics(servers).create()
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    producer.produce(topic, b"kept")
    assert producer.flush(10) == 0
    getattr(private_services.kafka, fault)()
    private_services.kafka.start()
    messages = Topics(servers).read(topic, at_least=1)
    assert [message.value() for message in messages] == [b"kept"]


@pytest.fixture
def elsewhere(private_services: Stack, tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment without services, with folders of its own."""
    cache = tmp_path / "django-outbox"
    cache.mkdir()
    (cache / "jars").symlink_to(default_cache())
    with tempfile.TemporaryDirectory() as temporary:
        # Under root another user's Postgres works in there.
        Path(temporary).chmod(0o755)
        services = ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS")
        yield {
            name: value for name, value in os.environ.items() if name not in services
        } | {
            # Containers would outlive a killed owner by some seconds.
            "DEVSTACK_SOURCES": "embedded",
            "PYTHONPATH": str(REPOSITORY),
            "TMPDIR": temporary,
            "XDG_CACHE_HOME": str(tmp_path),
        }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_command_prints_the_variables_and_leaves_nothing_running(
    number: signal.Signals, elsewhere: dict[str, str]
) -> None:
    # In the background of a script, where SIGINT is ignored from the start.
    command = [*IN_BACKGROUND, sys.executable, "-m", "django_outbox.devstack"]
    with Process("devstack", command, elsewhere) as ended:
        ended.wait_for_output("KAFKA_BOOTSTRAP_SERVERS=", timeout=180)
        (database_url, servers) = [line.partition("=")[2] for line in ended.output]
        psycopg.connect(database_url).close()
        Topics(servers).create()
        ended.signal(number)
        assert ended.exit_code() == (-number if number == signal.SIGKILL else 0)
    folder = Path(elsewhere["TMPDIR"])
    eventually(lambda: not list(folder.iterdir()), what="the end of its folders")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(database_url)
