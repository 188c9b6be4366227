"""Each fault against each relay: `python3 tests/run.py --chaos`."""

from __future__ import annotations

import threading

import pytest

from ...machine import SEEDS, chaos
from ..auditing import audit, deliveries
from ..harvesters import MODES
from ..lag import Lags
from .conftest import SceneOf
from .fault_matrix import FAULTS, Fault
from .proof import PROPERTY
from .scene import BACKLOG, WINDOW, overlaps

pytestmark = chaos

NEVER = {"phantoms", "out_of_order", "spoilt"}
"""Promises that hold whatever happens, beside that nothing is lost."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("relay", MODES)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_promise_holds_through_a_fault(
    scene_of: SceneOf,
    fault: Fault,
    relay: str,
    seed: int,
    request: pytest.FixtureRequest,
) -> None:
    with scene_of({**MODES[relay], **fault.variables}, seed) as scene:
        scene.writers.wait_for(100)
        scene.writers.burst(BACKLOG)
        scene.table.wait_until_busy()
        threading.Event().wait(scene.chance.uniform(0, 0.2))
        lasted = fault.act(scene)
        scene.writers.wait_for(200)

    ledger, sent = scene.writers.ledger, deliveries(scene.topics.read(scene.topic))
    found = audit(ledger, sent)
    assert not found.lost
    stop = max(0.0, Lags(ledger, sent).longest_stop()[0] - lasted)
    figures = {"relay": relay, "seed": seed, "twice": found.duplicates, "stop": stop}
    request.node.user_properties.append((PROPERTY, {"fault": fault.text, **figures}))

    terms = scene.harvesters.terms()
    assert not NEVER & found.broken.keys(), found.broken
    assert overlaps(terms, scene.still) == []
    if fault.keeps_leader:
        assert {name for *_, name in terms} == {scene.leader.name}
    assert found.duplicates <= (0 if relay == "ledger" else fault.windows * WINDOW)
    assert stop <= fault.back_within
