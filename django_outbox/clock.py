"""
Monotonic time for leases and events: CLOCK_BOOTTIME.

Nobody sets this clock, and it runs while the machine is suspended. A lease on
CLOCK_MONOTONIC would survive a suspend that outlasted the broker's session.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Systems without CLOCK_BOOTTIME get a clock that may stop during suspend."""

boottime: Final[Callable[[], float]] = partial(time.clock_gettime, _BOOTTIME)
"""Monotonic time in seconds. The relay asks for it once a record, so it has no
Python frame of its own."""


def boottime_ns() -> int:
    """Return monotonic time in nanoseconds."""
    return time.clock_gettime_ns(_BOOTTIME)
