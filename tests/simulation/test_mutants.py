"""The simulator finds each deliberate bug; a test that finds none proves none."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor

import pytest

from .hunts import MUTANTS, hunt_for
from .world import Outcome

HISTORIES = 3000
"""Within how many histories of its profile a bug must be found."""


@pytest.fixture(scope="module")
def hunts(pool: ProcessPoolExecutor) -> Mapping[str, Future[Outcome | None]]:
    """All hunts, begun at once."""
    return {name: pool.submit(hunt_for, name, HISTORIES) for name in MUTANTS}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_deliberate_bug_is_found(
    hunts: Mapping[str, Future[Outcome | None]], name: str
) -> None:
    outcome = hunts[name].result()

    assert outcome is not None, f"{name} went unnoticed in {HISTORIES} histories"
