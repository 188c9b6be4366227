"""A database, topics and harvester processes of each test's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import uuid4

import pytest

from django_outbox.devstack import Stack

from ..services import Topics
from .auditing import PARTITIONS
from .groups import Groups
from .harvesters import FAST, Harvesters
from .tables import OutboxTable, Server, project_environment


@pytest.fixture(scope="session")
def server(services: Stack) -> Iterator[Server]:
    """The session's PostgreSQL."""
    server = Server(services.database_url)
    yield server
    server.close()


@pytest.fixture
def table(server: Server) -> Iterator[OutboxTable]:
    """An empty outbox in a database of its own."""
    table = server.create()
    yield table
    server.drop(table)


@pytest.fixture
def environment(table: OutboxTable, services: Stack) -> dict[str, str]:
    """What leads processes to this test's outbox."""
    return environment_of(table, services)


@pytest.fixture
def harvesters(environment: Mapping[str, str]) -> Iterator[Harvesters]:
    """Starts harvesters of this test's outbox; ends them with the test."""
    with Harvesters(environment) as harvesters:
        yield harvesters


@pytest.fixture(scope="session")
def topics(services: Stack) -> Topics:
    """Makes topics and reads them to their end."""
    return Topics(services.bootstrap_servers)


@pytest.fixture(scope="session")
def groups(services: Stack) -> Groups:
    """Asks the broker about leader groups."""
    return Groups(services.bootstrap_servers)


@pytest.fixture
def topic(topics: Topics) -> str:
    """A topic with a few partitions."""
    return topics.create(partitions=PARTITIONS)


def environment_of(table: OutboxTable, services: Stack) -> dict[str, str]:
    """An outbox's environment: fast timing, and a leader group of its own."""
    group = f"acceptance-{uuid4()}"
    return {
        **project_environment(),
        **FAST,
        "DATABASE_URL": table.url,
        "KAFKA_BOOTSTRAP_SERVERS": services.bootstrap_servers,
        "OUTBOX_TABLE": table.name,
        "OUTBOX_LEADER_TOPIC": group,
        "OUTBOX_LEADER_GROUP": group,
    }
