"""Each fault against each relay: `python3 tests/run.py --chaos`."""

from __future__ import annotations

import threading
import time
import uuid

import pytest
from confluent_kafka import Producer

from django_outbox.devstack import Stack
from django_outbox.kafka.config import heartbeat_config
from django_outbox.settings.options import OutboxSettings

from ...machine import SEEDS, chaos
from .conftest import SceneOf
from .fault_matrix import FAULTS, Fault
from .impaired_link import ImpairedLink
from .scene import RELAYS
from .trial import tried

pytestmark = chaos


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("relay", RELAYS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_promise_holds_through_a_fault(
    scene_of: SceneOf,
    fault: Fault,
    relay: str,
    seed: int,
    request: pytest.FixtureRequest,
) -> None:
    setting = scene_of({**RELAYS[relay], **fault.variables}, seed)
    tried(fault, setting, relay=relay, seed=seed, request=request)


def test_heartbeats_go_out_soon_after_each_reset(
    services: Stack, to_kafka: ImpairedLink
) -> None:
    """Where librdkafka starts over they wait for a second or two."""
    options = OutboxSettings(KAFKA={"bootstrap.servers": to_kafka.address})
    producer, topic = Producer(heartbeat_config(options)), str(uuid.uuid4())
    errors: list[object] = []

    def send() -> float:
        began = time.monotonic()
        producer.produce(topic, b"", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(10) == 0
        return time.monotonic() - began

    send()
    waits = []
    for _ in range(5):
        # Behind the last one for longer than a client waits to connect again.
        threading.Event().wait(1.5)
        to_kafka.reset()
        waits.append(send())
    assert errors == [None] * 6
    assert max(waits) < 0.5
