"""The one way in which tests wait for a condition that nothing notifies them of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    condition: Callable[[], T | None],
    *,
    what: object = "",
    timeout: float = 60.0,
    interval: float = 0.05,
    meanwhile: Callable[[], object] | None = None,
) -> T:
    """
    Return what a condition returns, as soon as that is true.

    The default time-out is for a slow machine. A bound that is itself a promise
    is an assertion of its own.

    Args:
        what: What is waited for, or a function that says at the end what is missing.
        timeout: Seconds until the test fails.
        interval: Seconds between two calls of the condition.
        meanwhile: Is called between them instead of a pause.
    """
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > deadline:
            what = what() if callable(what) else what
            raise AssertionError(f"not within {timeout:g} s: {what or condition}")
        if meanwhile is None:
            time.sleep(interval)
        else:
            meanwhile()
    return found
