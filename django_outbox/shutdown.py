"""
Handling of SIGTERM and SIGINT in a worker's process.

Enter `StopSignals` on the main thread before anything else is built, and check `stop`
wherever the process may end.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Final, NoReturn

_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)
_LEAVE_LINE: Final = b"\r\x1b[2K\x1b[?25h"
"""Clears the line of the cursor, and shows the cursor."""

LEAVE_TIMEOUT: Final = 0.2
"""Seconds for which the end of a process waits for the threads of its work."""


class StopSignals:
    """
    The first signal sets `stop`, the second one exits at once.

    SIGINT is handled even if the process was started with SIGINT ignored, as
    background jobs of a script are.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._is_asked = False
        self._others = {*threading.enumerate()}

    def __enter__(self) -> StopSignals:
        self._before = [(number, signal.getsignal(number)) for number in _NUMBERS]
        self.listen()
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def listen(self) -> None:
        """Install the handlers, also over those that a library has installed since."""
        for number in _NUMBERS:
            signal.signal(number, self._handle)

    def leave(self, code: int) -> int:
        """
        Return the exit code once our threads that began since have ended.

        One that still waits for an answer of a service ends the process at once: a
        normal exit takes the TLS library apart under its client, which may crash.
        """
        until = time.monotonic() + LEAVE_TIMEOUT
        ours = [
            thread
            for thread in threading.enumerate()
            if thread.name.startswith("outbox-") and thread not in self._others
        ]
        for thread in ours:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in ours):
            sys.stdout.flush()
            exit_at_once(code)
        return code

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_asked:
            exit_at_once(128 + number)
        self._is_asked = True
        # On another thread: this thread may hold the lock of the event, or that of
        # `threading.Thread`, when the signal arrives, and would deadlock.
        _thread.start_new_thread(self.stop.set, ())


def exit_at_once(code: int) -> NoReturn:
    """End the process despite running threads, and restore the terminal."""
    if os.isatty(1):
        # The live line of the terminal hides the cursor.
        os.write(1, _LEAVE_LINE)
    os._exit(code)
