"""Let a fault happen to a scene, and judge what became of the records."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Final

import pytest

from ..auditing import Audit, audit, deliveries
from ..lag import Lags
from .fault_matrix import TAKEOVER, Fault
from .proof import PROPERTY
from .scene import BACKLOG, WINDOW, Scene, overlaps

NEVER: Final = {"phantoms", "out_of_order", "spoilt"}
"""Promises that hold whatever happens, beside that nothing is lost."""


def tried(
    fault: Fault,
    setting: AbstractContextManager[Scene],
    *,
    relay: str,
    seed: int,
    request: pytest.FixtureRequest,
) -> None:
    """Fail unless every promise is kept, and the bounds of the fault are."""
    with setting as scene:
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

    check(scene, found)
    terms = [scene.harvesters.terms(shard) for shard in range(scene.shards)]
    if fault.keeps_leader and scene.shards == 1:
        assert {name for *_, name in terms[0]} == {scene.leader.name}
    windows, back_within = fault.windows, fault.back_within
    if scene.shards > 1:
        # Each term that ends may leave W of its own, and the standby leads some.
        windows = max(windows * scene.shards, sum(map(len, terms)) - scene.shards)
        back_within = max(back_within, TAKEOVER)
    assert found.duplicates <= (0 if relay == "ledger" else windows * WINDOW)
    assert stop <= back_within


def check(scene: Scene, found: Audit) -> None:
    """Fail unless the promises that hold whatever happens were kept."""
    assert not found.lost
    assert not NEVER & found.broken.keys(), found.broken
    for shard in range(scene.shards):
        assert overlaps(scene.harvesters.terms(shard), scene.still) == []
