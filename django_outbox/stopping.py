"""
SIGTERM and SIGINT: how a worker's process is asked to end.

`running.py` and `consuming/process.py` enter it on the main thread, before
anything is built, and look at `stop` whenever they may end.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType


class StopSignals:
    """The first one asks to stop, the second one exits at once."""

    def __init__(self) -> None:
        self.stop = threading.Event()

    def __enter__(self) -> StopSignals:
        numbers = (signal.SIGTERM, signal.SIGINT)
        self._before = [(n, signal.signal(n, self._handle)) for n in numbers]
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            os._exit(128 + number)
        self.stop.set()
