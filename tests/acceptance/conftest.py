"""A database, topics and harvester processes of each test's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import uuid4

import pytest

from django_outbox.devstack import Stack

from ..groups import is_alone
from ..services import Topics
from .auditing import PARTITIONS, Audit, Audited, Delivery, audit, deliveries
from .groups import Groups
from .harvesters import FAST, PATIENT, Harvesters
from .lag import Lags, Measure
from .tables import OutboxTable, Server, project_environment
from .writing import Ledger, Writers


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
def environment(
    table: OutboxTable, topics: Topics, request: pytest.FixtureRequest
) -> dict[str, str]:
    """What leads processes to this test's outbox, and the test's timing."""
    timing = FAST if is_alone(request.node.nodeid) else PATIENT
    return {**environment_of(table, topics.servers), **timing}


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
    """A topic with a few partitions, and the broker's time in its records."""
    return topics.create(
        partitions=PARTITIONS, config={"message.timestamp.type": "LogAppendTime"}
    )


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Measure:
    """Measures the lags of a ledger's records; the run's summary tells of them."""

    def measure(ledger: Ledger, sent: Sequence[Delivery]) -> Lags:
        lags = Lags(ledger, sent)
        request.node.user_properties.append(lags.properties())
        return lags

    return measure


@pytest.fixture
def audited(topics: Topics, topic: str, measure: Measure) -> Audited:
    """Compares what writers have committed with what is in the topic."""

    def audited(writers: Writers, *, is_pipelined: bool = True) -> Audit:
        sent = deliveries(topics.read(topic))
        measure(writers.ledger, sent)
        return audit(writers.ledger, sent, is_pipelined=is_pipelined)

    return audited


def environment_of(table: OutboxTable, bootstrap_servers: str) -> dict[str, str]:
    """An outbox's environment: patient timing, and a leader group of its own."""
    group = f"acceptance-{uuid4()}"
    return {
        **project_environment(),
        **PATIENT,
        "DATABASE_URL": table.url,
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
        "OUTBOX_TABLE": table.name,
        "OUTBOX_LEADER_TOPIC": group,
        "OUTBOX_LEADER_GROUP": group,
    }
