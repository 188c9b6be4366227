"""
Lets other processes of this user find a running devstack.

A devstack publishes its variables in a file of the user's cache folder and
holds a lock on it. The system releases the lock however the process ends, so a
file without a lock is stale.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

ANOTHER: Final = "Another devstack is running and stays the default."

LOCK_TIMEOUT: Final = 1.0
"""Seconds that a publisher waits for the lock; readers hold it for an instant."""


def address_file() -> Path:
    """Return the path of the file; needs the extra `devstack`."""
    from platformdirs import user_cache_path

    return user_cache_path("django-outbox", appauthor=False) / "devstack.json"


@contextmanager
def published(
    environment: Mapping[str, str], *, path: Path | None = None
) -> Iterator[str]:
    """
    Publish these variables while the block runs.

    Yields why nothing is published, as when another devstack is; else "".
    """
    with ExitStack() as stack:
        try:
            file = _opened(path or address_file())
            stack.callback(os.close, file)
            obstacle = "" if _lock(file) else ANOTHER
            if not obstacle:
                stack.callback(os.ftruncate, file, 0)
                os.ftruncate(file, 0)
                os.pwrite(file, json.dumps(dict(environment)).encode(), 0)
        except (ImportError, OSError) as error:
            # The terminal shows the addresses, too.
            obstacle = f"Other terminals do not find this devstack: {error}."
        yield obstacle


def running(*, path: Path | None = None) -> dict[str, str]:
    """Return the variables of a running devstack; empty if none is published."""
    try:
        with (path or address_file()).open("rb") as file:
            if _try_lock(file.fileno(), fcntl.LOCK_SH):
                return {}
            return dict(json.load(file))
    except (ImportError, OSError, ValueError):
        # Not installed, never run, or starting or stopping right now.
        return {}


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Only this user may read the file, because the URL contains a password.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(file: int) -> bool:
    deadline = time.monotonic() + LOCK_TIMEOUT
    while not _try_lock(file, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _try_lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
