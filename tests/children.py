"""Run a command so that no process which it started outlives it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import psutil

PR_SET_CHILD_SUBREAPER: Final = 36

GRACE: Final = 10.0
"""Seconds between SIGTERM and SIGKILL."""


def supervise(command: Sequence[str]) -> int:
    """
    Run a command, then end all that it has left; return its exit code.

    SIGTERM is passed on. Ctrl-C reaches the command without help, since the
    terminal sends it to both.
    """
    if sys.platform == "linux":
        # Orphans become children of this process, which finds and reaps them.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # An ignored SIGINT stays ignored: the command inherits that, as in a script's `&`.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)
    child = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: _pass_on(child.pid, signal.SIGTERM))
    try:
        return _reap_until(child)
    finally:
        _end_descendants()


def _pass_on(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _reap_until(child: subprocess.Popen[bytes]) -> int:
    """Reap every process that ends; return when the command itself has ended."""
    pid = 0
    while pid != child.pid:
        pid, status = os.waitpid(-1, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    # As a shell tells that a signal has ended a command.
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _end_descendants() -> None:
    alive = psutil.Process().children(recursive=True)
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                end(process)
        _, alive = psutil.wait_procs(alive, timeout=GRACE)
