"""One of three brokers dies: `python3 tests/run.py --chaos -k three`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_outbox.devstack import Stack
from django_outbox.devstack.embedded_postgres import EmbeddedPostgres

from ...machine import SEEDS, chaos
from ..harvesters import MODES
from .conftest import SceneOf
from .fault_matrix import BROKER_FAULTS, Fault
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
    postgres, kafka = EmbeddedPostgres(), ThreeBrokers()
    try:
        postgres.start()
        kafka.start()
        yield Stack(postgres=postgres, kafka=kafka)
    finally:
        postgres.close()
        kafka.close()


@pytest.fixture
def bootstrap(services: Stack) -> str:
    """All of them: the one that dies may be any."""
    return services.bootstrap_servers


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("relay", MODES)
@pytest.mark.parametrize("fault", BROKER_FAULTS, ids=lambda fault: fault.name)
def test_every_promise_holds_when_one_of_three_brokers_dies(
    scene_of: SceneOf,
    fault: Fault,
    relay: str,
    seed: int,
    request: pytest.FixtureRequest,
) -> None:
    setting = scene_of({**MODES[relay], **DURABLE, **fault.variables}, seed)
    tried(fault, setting, relay=relay, seed=seed, request=request)
