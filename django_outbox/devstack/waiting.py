"""
Wait as long as there is progress, and no longer.

How long something takes depends on the machine: on a slow network, a slow disk
or a busy processor ten times as long as here. So a wait ends when it has what
it waits for, or when nothing has moved for a while; never because the clock
says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from .service import DevstackError

STALL_AFTER: Final = 60.0
"""Seconds without any movement after which a wait gives up."""

_LONGEST_STEP: Final = 1.0
"""
Seconds without movement that one look can prove. More time may pass between
two looks when this process itself was suspended, and whatever it waits for may
have been suspended with it.
"""

_BLOCK: Final = 65_536
"""Bytes; less may be the input and output of a process that only idles."""


class Stalled(DevstackError):
    """Nothing has moved for a while."""


class StallDetector:
    """
    Tells whether a state has stayed the same for too long.

    Args:
        patience: seconds without movement that are not a stall yet.
        clock: returns seconds.
    """

    def __init__(
        self,
        *,
        patience: float = STALL_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._state: object = None
        self._looked_at = clock()
        self._unmoved = 0.0

    def is_stalled(self, state: object) -> bool:
        """Compare with the state of the last call; call it at least every second."""
        now = self._clock()
        passed, self._looked_at = now - self._looked_at, now
        if state != self._state:
            self._state, self._unmoved = state, 0.0
        else:
            self._unmoved += min(passed, _LONGEST_STEP)
        return self._unmoved > self._patience


def wait_while_moving(
    is_done: Callable[[], object],
    *,
    what: str,
    progress: Callable[[], object] = lambda: None,
    shows: Callable[[], object] = lambda: None,
    patience: float = STALL_AFTER,
    interval: float = 0.1,
) -> None:
    """
    Wait for a condition, for as long as `progress` returns something new.

    Args:
        is_done: the condition.
        what: what is waited for, for the error.
        progress: returns what changes as long as there is hope.
        shows: is called at each look.
        patience: seconds for which it may stay the same.
        interval: seconds between two looks.

    Raises:
        Stalled: nothing has moved for `patience` seconds.
    """
    detector = StallDetector(patience=patience)
    while not is_done():
        shows()
        if detector.is_stalled(state := progress()):
            last = "" if state is None else f" (last seen: {state})"
            raise Stalled(
                f"Waited for {what}, and nothing has moved for {patience:.0f} s{last}."
            )
        time.sleep(interval)


def work_done(pids: Iterable[int], *, output: Path | None = None) -> tuple[int, ...]:
    """
    Figures that grow while processes and their children get on.

    Whole seconds of processor time, blocks read and written where the system
    counts them, and the size of their output: a process that only idles moves
    none of them within a minute.
    """
    import psutil

    seconds, characters = 0.0, 0
    for pid in pids:
        with suppress(psutil.Error):
            command = psutil.Process(pid)
            for process in (command, *command.children(recursive=True)):
                with suppress(psutil.Error):
                    seconds += sum(process.cpu_times()[:2])
                    # Not on macOS, and not of everybody's processes.
                    if count := getattr(process, "io_counters", None):
                        counters = count()
                        characters += getattr(counters, "read_chars", 0)
                        characters += getattr(counters, "write_chars", 0)
    size = 0
    if output is not None:
        with suppress(OSError):
            size = output.stat().st_size
    return int(seconds), characters // _BLOCK, size
