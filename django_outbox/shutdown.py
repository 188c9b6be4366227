"""
SIGTERM and SIGINT: how a worker's process is asked to end.

`harvester/process.py` and `consuming/consumer_process.py` enter it on the main
thread, before anything is built, and look at `stop` whenever they may end.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from types import FrameType
from typing import Final, NoReturn

_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)
_LEAVE_LINE: Final = b"\r\x1b[2K\x1b[?25h"
"""Clears the line in which the cursor stands, and shows the cursor."""


class StopSignals:
    """
    The first one asks to stop, the second one exits at once.

    SIGINT counts even where it was ignored from the start, as in the background
    jobs of a script: who sends it to a worker wants its end.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._is_asked = False

    def __enter__(self) -> StopSignals:
        self._before = [(number, signal.getsignal(number)) for number in _NUMBERS]
        self.listen()
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals, also from a library that has taken them meanwhile."""
        for number in _NUMBERS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_asked:
            exit_at_once(128 + number)
        self._is_asked = True
        # Elsewhere: a signal may come while this thread holds the lock of the event,
        # or that of `threading.Thread`, and would wait for it for ever.
        _thread.start_new_thread(self.stop.set, ())


def exit_at_once(code: int) -> NoReturn:
    """End the process whatever its threads do; leave a terminal as it was."""
    if os.isatty(1):
        # The live line hides the cursor, and has no time left to go by itself.
        os.write(1, _LEAVE_LINE)
    os._exit(code)
