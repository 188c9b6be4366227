"""Servers of these tests' own, the impaired ways to them, and the report."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import pytest

from django_outbox.devstack import Stack
from django_outbox.devstack.embedded_kafka import EmbeddedKafka
from django_outbox.devstack.embedded_postgres import EmbeddedPostgres
from django_outbox.devstack.service import Service, free_port

from ...machine import SEEDS
from ...services import Topics, start_missing
from ..harvesters import SESSION_TIMEOUT, Harvesters
from ..tables import OutboxTable, Server
from ..writing import Writers
from . import continuing, proof
from .fault_matrix import BROKER_FAULTS, FAULTS
from .impaired_link import ImpairedLink
from .scene import BACKLOG, RELAYS, WINDOW, Scene, Site

CASES: Final = len(FAULTS + BROKER_FAULTS) * len(RELAYS) * len(SEEDS)

pytest.register_assert_rewrite(f"{__package__}.trial")

SceneOf: TypeAlias = Callable[[Mapping[str, str], int], AbstractContextManager[Scene]]
"""Takes variables of the harvesters, and a seed."""


@contextmanager
def running(postgres: Service, kafka: Service) -> Iterator[Stack]:
    """Start two servers, and end them with the block."""
    try:
        postgres.start()
        kafka.start()
        yield Stack(postgres=postgres, kafka=kafka)
    finally:
        postgres.close()
        kafka.close()


@pytest.fixture(scope="module")
def to_kafka() -> Iterator[ImpairedLink]:
    """The way to a second listener of the broker, which it calls by this address."""
    listener, port = free_port(), free_port()
    with ImpairedLink(port, ("127.0.0.1", listener)) as link:
        yield link


@pytest.fixture(scope="module")
def services(to_kafka: ImpairedLink) -> Iterator[Stack]:
    """Servers that nobody else uses."""
    kafka = EmbeddedKafka(progress=print)
    settings = kafka.settings
    host, listener = to_kafka.server
    settings["listeners"] += f",LINK://{host}:{listener}"
    settings["advertised.listeners"] += f",LINK://{to_kafka.address}"
    settings["listener.security.protocol.map"] += ",LINK:PLAINTEXT"
    with running(EmbeddedPostgres(), kafka) as servers:
        yield servers


@pytest.fixture(scope="module")
def to_database(services: Stack) -> Iterator[ImpairedLink]:
    """The way to PostgreSQL."""
    server = urlsplit(services.database_url)
    assert server.hostname
    assert server.port
    with ImpairedLink(free_port(), (server.hostname, server.port)) as link:
        yield link


@pytest.fixture(scope="module")
def server(services: Stack) -> Iterator[Server]:
    """The module's PostgreSQL."""
    server = Server(services.database_url)
    yield server
    server.close()


@pytest.fixture(scope="module")
def topics(services: Stack) -> Topics:
    """The module's Kafka."""
    return Topics(services.bootstrap_servers)


@pytest.fixture
def bootstrap(to_kafka: ImpairedLink) -> str:
    """Where the leader looks for brokers."""
    return to_kafka.address


@pytest.fixture
def site(
    services: Stack,
    bootstrap: str,
    to_kafka: ImpairedLink,
    to_database: ImpairedLink,
    topics: Topics,
) -> Iterator[Site]:
    """Where a scene is set; what a test leaves broken is repaired for the next one."""
    yield Site(
        servers=services,
        bootstrap=bootstrap,
        to_kafka=to_kafka,
        to_database=to_database,
    )
    for link in (to_kafka, to_database):
        link.heal()
    start_missing(services)
    # A broker that crashes reads the logs of all its topics before it serves any.
    topics.delete_all()


@pytest.fixture
def scene_of(
    site: Site, harvesters: Harvesters, table: OutboxTable, topics: Topics, topic: str
) -> SceneOf:
    """Begin a scene: somebody leads."""

    @contextmanager
    def scene_of(variables: Mapping[str, str], seed: int) -> Iterator[Scene]:
        harvesters.environment = {
            **harvesters.environment,
            **variables,
            "OUTBOX_MAX_IN_FLIGHT": str(WINDOW),
        }
        server = urlsplit(table.url).netloc.rpartition("@")[2]
        leader = harvesters.start(
            KAFKA_BOOTSTRAP_SERVERS=site.bootstrap,
            DATABASE_URL=table.url.replace(
                f"@{server}/", f"@{site.to_database.address}/"
            ),
        )
        leader.wait_for("leader_acquired")
        standby = harvesters.start()
        shards = int(variables.get("OUTBOX_SHARDS", "1"))
        standby.wait_for("leader_acquired" if shards > 1 else "ready")
        with Writers(table, topic, seed=seed) as writers:
            yield Scene(
                site=site,
                topics=topics,
                table=table,
                topic=topic,
                harvesters=harvesters,
                writers=writers,
                leader=leader,
                standby=standby,
                shards=shards,
                chance=random.Random(seed),
            )
        table.wait_until_empty()

    return scene_of


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what an interrupted run has tried."""
    tried = continuing.tried(config)
    left_out = [item for item in items if item.nodeid in tried]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid not in tried]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what the faults did, and write the page when all have been tried."""
    proof.write(
        terminalreporter,
        CASES,
        backlog=BACKLOG,
        window=WINDOW,
        session=SESSION_TIMEOUT,
    )
