"""
The process between the devstack's owner and one of its servers.

It makes the server's folder, runs what the owner asks for in it, and when its
standard input closes, because the owner said so or because the owner died, it
ends the server and removes the folder. `kept.py` is the owner's side. Run as
a plain script by path, with the standard library only.

Arguments: the folder's prefix; the signal that ends a server at once; the
user to run as, or nothing. On standard input a JSON list for each command; on
standard output the folder, then for each command its pid and, when it has
ended, its exit code; or in place of the pid why it could not start.
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
from pathlib import Path

PATIENCE = 2.0
"""Seconds for a server to end by its signal before it is killed."""


def tell(answer: object) -> None:
    """Answer the owner, who may be dead."""
    with contextlib.suppress(OSError):
        os.write(1, f"{answer}\n".encode())


def run(command: list[str], folder: str, user: str | None) -> subprocess.Popen[bytes]:
    """Run one command in a session of its own, its output appended to the log."""
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
    """End a server at once, in good order if it will, then all that it started."""
    if server.poll() is not None:
        # Its number may be another's by now.
        return
    with contextlib.suppress(ProcessLookupError):
        server.send_signal(ending)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(PATIENCE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def keep(prefix: str, ending: int, user: str | None) -> None:
    """Serve the owner until it is gone, then clear up."""
    folder = tempfile.mkdtemp(prefix=prefix)
    server = None
    try:
        if user:
            shutil.chown(folder, user)
        tell(folder)
        for line in sys.stdin:
            try:
                server = run(json.loads(line), folder, user)
            except OSError as error:
                tell(error)
                continue
            tell(server.pid)
            threading.Thread(
                target=lambda ran=server: tell(ran.wait()), daemon=True
            ).start()
    finally:
        # A signal that comes now wants what is being done.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if server:
            end(server, ending)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    # A second way to end: whoever signals the keeper means the server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        keep(sys.argv[1], int(sys.argv[2]), sys.argv[3] or None)
    finally:
        os._exit(0)
