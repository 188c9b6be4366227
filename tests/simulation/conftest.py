"""The workers that all tests of the simulator share."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from .tally import workers


@pytest.fixture(scope="package")
def pool() -> Iterator[ProcessPoolExecutor]:
    """A process for each processor."""
    with workers() as pool:
        yield pool
        pool.shutdown(cancel_futures=True)
