"""
Waits as long as there is progress.

How long something takes depends on the machine: with a slow network, a slow
disk or a busy processor it may take ten times as long. So a wait ends when its
condition is true, or when there has been no progress for a while, and never
after a fixed time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from .service import DevstackError

STALL_TIMEOUT: Final = 60.0
"""Seconds without progress after which a wait gives up."""

_MAX_STEP: Final = 1.0
"""
Maximum number of seconds that one check adds to the time without progress. If
more time has passed, this process was suspended, and the awaited process may
have been suspended with it.
"""

_BLOCK: Final = 65_536
"""Bytes of input and output that count as progress; an idle process does less."""


class Stalled(DevstackError):
    """There was no progress for a while."""


class StallDetector:
    """
    Detects that a state has not changed for too long.

    Args:
        timeout: Seconds without a change before it is a stall.
        clock: Returns seconds.
    """

    def __init__(
        self,
        *,
        timeout: float = STALL_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout = timeout
        self._clock = clock
        self._state: object = None
        self._checked_at = clock()
        self._unchanged = 0.0

    def is_stalled(self, state: object) -> bool:
        """Compare with the state of the last call; call it at least every second."""
        now = self._clock()
        passed, self._checked_at = now - self._checked_at, now
        if state != self._state:
            self._state, self._unchanged = state, 0.0
        else:
            self._unchanged += min(passed, _MAX_STEP)
        return self._unchanged > self._timeout


def wait_while_moving(
    is_done: Callable[[], object],
    *,
    what: str,
    progress: Callable[[], object] = lambda: None,
    shows: Callable[[], object] = lambda: None,
    timeout: float = STALL_TIMEOUT,
    interval: float = 0.1,
) -> None:
    """
    Wait for a condition, as long as the value of `progress` keeps changing.

    Args:
        is_done: The condition.
        what: Description of the condition, for the error.
        progress: Returns a value that changes while there is progress.
        shows: Called at each check.
        timeout: Seconds without progress before it is a stall.
        interval: Seconds between two checks.

    Raises:
        Stalled: no progress for `timeout` seconds.
    """
    detector = StallDetector(timeout=timeout)
    while not is_done():
        shows()
        if detector.is_stalled(state := progress()):
            last = "" if state is None else f" (last seen: {state})"
            raise Stalled(f"Waited for {what}; no progress for {timeout:.0f} s{last}.")
        time.sleep(interval)


def work_done(pids: Iterable[int], *, output: Path | None = None) -> tuple[int, ...]:
    """
    Return numbers that grow while processes and their children make progress.

    CPU time in whole seconds, blocks read and written (where the system counts
    them), and the size of the output. An idle process changes none of them
    within a minute.
    """
    import psutil

    seconds, characters = 0.0, 0
    for pid in pids:
        with suppress(psutil.Error):
            command = psutil.Process(pid)
            for process in (command, *command.children(recursive=True)):
                with suppress(psutil.Error):
                    seconds += sum(process.cpu_times()[:2])
                    # Not available on macOS, nor for processes of other users.
                    if count := getattr(process, "io_counters", None):
                        counters = count()
                        characters += getattr(counters, "read_chars", 0)
                        characters += getattr(counters, "write_chars", 0)
    size = 0
    if output is not None:
        with suppress(OSError):
            size = output.stat().st_size
    return int(seconds), characters // _BLOCK, size
