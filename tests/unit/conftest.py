"""What many unit tests need."""

from __future__ import annotations

import pytest

from tests.fakes.timeline import Timeline


@pytest.fixture
def clock() -> Timeline:
    """Seconds that pass only when a test says so."""
    return Timeline()
