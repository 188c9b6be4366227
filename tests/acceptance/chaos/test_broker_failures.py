"""One of three brokers dies: `python3 tests/run.py --chaos -k three`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_outbox.devstack import Stack
from django_outbox.devstack.embedded_postgres import EmbeddedPostgres

from ...machine import SEEDS, chaos
from ...services import Topics
from ..auditing import PARTITIONS
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
