"""Each fault against each relay: `python3 tests/run.py --chaos`."""

from __future__ import annotations

import pytest

from ...machine import SEEDS, chaos
from .conftest import SceneOf
from .fault_matrix import FAULTS, Fault
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
