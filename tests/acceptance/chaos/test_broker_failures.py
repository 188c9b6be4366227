"""One of three brokers dies: `python3 tests/run.py --chaos -k brokers`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from django_outbox.devstack import Stack
from django_outbox.devstack.embedded_postgres import EmbeddedPostgres

from ...machine import SEEDS, chaos
from ...services import Topics, start_missing
from ...waiting import eventually
from ..auditing import PARTITIONS, deliveries
from ..harvesters import Harvesters
from ..tables import OutboxTable
from .conftest import SceneOf, running
from .fault_matrix import BROKER_FAULTS, Fault
from .scene import RELAYS
from .three_brokers import ThreeBrokers
from .trial import tried

pytestmark = chaos

DURABLE = {
    "OUTBOX_TOPIC_REPLICATION_FACTOR": "3",
    "OUTBOX_TOPIC_MIN_INSYNC_REPLICAS": "2",
}


@pytest.fixture(scope="module")
def services() -> Iterator[Stack]:
    """A PostgreSQL, and three brokers."""
    with running(EmbeddedPostgres(), ThreeBrokers()) as servers:
        yield servers


@pytest.fixture
def topic(topics: Topics) -> str:
    """One of which a single replica acknowledges nothing."""
    return topics.create(
        partitions=PARTITIONS,
        config={
            "message.timestamp.type": "LogAppendTime",
            "min.insync.replicas": "2",
        },
    )


@pytest.fixture
def bootstrap(services: Stack) -> str:
    """All of them: the one that dies may be any."""
    return services.bootstrap_servers


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("relay", RELAYS)
@pytest.mark.parametrize("fault", BROKER_FAULTS, ids=lambda fault: fault.name)
def test_every_promise_holds_when_one_of_three_brokers_dies(
    scene_of: SceneOf,
    fault: Fault,
    relay: str,
    seed: int,
    request: pytest.FixtureRequest,
) -> None:
    setting = scene_of({**RELAYS[relay], **DURABLE, **fault.variables}, seed)
    tried(fault, setting, relay=relay, seed=seed, request=request)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_topic_whose_only_broker_is_dead_delays_no_other(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    services: Stack,
    bootstrap: str,
    delivery: str,
) -> None:
    """Each of its records is of a new key, and no key is blocked from the start."""
    alive, dead = topics.create(), f"dead-{delivery}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(dead, 1, 1)])[dead].result(timeout=15)
    harvesters.environment = {
        **harvesters.environment,
        **DURABLE,
        "OUTBOX_DELIVERY": delivery,
    }
    leader = harvesters.start()
    leader.wait_for("leader_acquired")
    inserted = table.insert(alive, "key")
    table.insert(dead, "key")
    table.wait_until_empty()
    assert isinstance(services.kafka, ThreeBrokers)
    services.kafka.crash(topics.leader(dead))

    def insert() -> None:
        inserted.extend(table.insert(alive, "key", count=4))
        table.insert(dead, f"key {len(inserted)}")
        time.sleep(0.2)  # the subject: a steady rate, with a new key each time

    def delivered() -> int:
        return len(inserted) - table.count(f"kafka_topic = '{alive}'")

    eventually(lambda: delivered() >= 500, timeout=45, meanwhile=insert)
    eventually(lambda: delivered() == len(inserted))

    assert table.count() > 0
    read = [delivery.id for delivery in deliveries(topics.read(alive))]
    if delivery == "at-least-once":
        # The broker may have led the leader topic, too: a leader that is fenced has
        # sent records that the next one sends again.
        read = list(dict.fromkeys(read))
    assert read == inserted
    start_missing(services)
    table.wait_until_empty()
