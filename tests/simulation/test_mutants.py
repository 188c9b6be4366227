"""The simulator finds each deliberate bug; a test that finds none proves none."""

from __future__ import annotations

import pytest

from .ahead import HUNT, Histories
from .hunts import MUTANTS

# It waits as long as histories are played.
pytestmark = pytest.mark.timeout(0)


def begin(histories: Histories) -> None:
    for name in MUTANTS:
        histories.begin_hunt(name)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_deliberate_bug_is_found(histories: Histories, name: str) -> None:
    outcome = histories.hunted(name)

    assert outcome is not None, f"{name} went unnoticed in {HUNT} histories"
