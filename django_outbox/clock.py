"""
Monotonic time for leases and events: CLOCK_BOOTTIME.

It cannot be set, and it runs while the machine is suspended. A lease measured with
CLOCK_MONOTONIC would survive a suspend that is longer than the broker's session.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Without CLOCK_BOOTTIME the clock may stop while the machine is suspended."""

boottime: Final[Callable[[], float]] = partial(time.clock_gettime, _BOOTTIME)
"""Monotonic time in seconds. It is read once for each record, and a partial is faster
than a function."""


def boottime_ns() -> int:
    """Return monotonic time in nanoseconds."""
    return time.clock_gettime_ns(_BOOTTIME)
