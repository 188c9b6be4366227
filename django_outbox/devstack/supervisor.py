"""
The process between the devstack's owner and one of its servers.

It creates the server's folder and runs the owner's commands in it. When its
standard input closes, because the owner closed it or died, it ends the server
and removes the folder. Runs as a plain script by path, with the standard
library only.

Arguments: the prefix of the folder's name; the signal that ends a server at
once; the user to run as, or an empty string. Standard input: a JSON list for
each command. Standard output: the folder, then for each command its pid and,
when it has ended, its exit code; or an error message instead of the pid.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path

TERMINATION_TIMEOUT = 2.0
"""Seconds for a server to end after its signal before it is killed."""


def answer(line: object) -> None:
    """Send a line to the owner, which may be dead."""
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


def run(command: list[str], folder: str, user: str | None) -> subprocess.Popen[bytes]:
    """Start one command in a new session; its output is appended to the log."""
    with Path(folder, "log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            user=user,
            group=pwd.getpwnam(user).pw_gid if user else None,
            extra_groups=[] if user else None,
        )


def end(server: subprocess.Popen[bytes], ending: int) -> None:
    """End a server with its signal, or kill it; then kill its process group."""
    if server.poll() is not None:
        # Its pid may belong to another process by now.
        return
    with contextlib.suppress(ProcessLookupError):
        server.send_signal(ending)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(TERMINATION_TIMEOUT)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def supervise(prefix: str, ending: int, user: str | None) -> None:
    """Serve the owner until it closes the pipe, then clean up."""
    folder = tempfile.mkdtemp(prefix=prefix)
    server = None
    try:
        if user:
            shutil.chown(folder, user)
        answer(folder)
        for line in sys.stdin:
            try:
                server = run(json.loads(line), folder, user)
            except OSError as error:
                answer(error)
                continue
            answer(server.pid)
            threading.Thread(
                target=lambda ran=server: answer(ran.wait()), daemon=True
            ).start()
    finally:
        # The clean-up is what another SIGTERM would ask for.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if server:
            end(server, ending)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    # SIGTERM also ends the server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        supervise(sys.argv[1], int(sys.argv[2]), sys.argv[3] or None)
    except (LookupError, OSError):
        # No such user, or no folder for temporary files: nobody can be answered yet.
        traceback.print_exc()
    finally:
        os._exit(0)
